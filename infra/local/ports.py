"""TCP ports on the loopback address."""

import random
import socket

import psutil

LOOPBACK = "127.0.0.1"
# Below what systems give to outgoing connections, so that none takes a port between its choice and its use.
PORTS = range(20_000, 32_768)


def free_port() -> int:
    """Return a port that nobody listens on now, drawn at random so that two who choose at once choose apart."""
    return next(port for port in random.sample(PORTS, len(PORTS)) if is_free(port))


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now; connections that are only being closed do not matter."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def holder(port: int) -> str | None:
    """Who listens on `port`, as "name (pid 12)"; None where the system does not tell."""
    try:
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and tuple(connection.laddr)[1:] == (port,)
            if listens and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        pass
    return None
