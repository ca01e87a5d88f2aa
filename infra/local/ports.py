"""TCP ports on the loopback address."""

import socket

import psutil

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


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
