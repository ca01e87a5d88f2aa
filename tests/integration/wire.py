"""A TCP line that a test can break as a network breaks one, with the ends none the wiser."""

import asyncio
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass


@dataclass(eq=False)
class _Connection:
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    is_forgotten: bool = False


class Wire:
    """Forwards connections to an address; what goes over them is not looked at.

    Parameters
    ----------
    upstream
        Port of the server, on the loopback address.
    """

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._open: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port, `port`."""
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening, and close what is open."""
        if self._listener is not None:
            self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def hang_up(self) -> int:
        """Close every connection as a server does that has waited long enough; how many there were."""
        closed = list(self._open)
        for connection in closed:
            connection.client.close()
            connection.server.close()
        return len(closed)

    async def forget(self) -> int:
        """Drop every connection without a word, as a gateway does: whoever writes to one is told that it is gone."""
        dropped = [connection for connection in self._open if not connection.is_forgotten]
        for connection in dropped:
            connection.is_forgotten = True
            connection.server.close()
        return len(dropped)

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        from_server, server = await asyncio.open_connection("127.0.0.1", self._upstream)
        connection = _Connection(client, server)
        self._open.add(connection)
        back = asyncio.create_task(self._carry_back(connection, from_server))
        task = asyncio.current_task()
        assert task is not None
        self._tasks |= {task, back}
        try:
            with suppress(ConnectionError):
                while data := await reader.read(65536):
                    if connection.is_forgotten:
                        client.get_extra_info("socket").setsockopt(
                            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                        )
                        client.transport.abort()
                        break
                    server.write(data)
                    await server.drain()
        finally:
            back.cancel()
            self._open.discard(connection)
            self._tasks -= {task, back}
            client.close()
            server.close()

    async def _carry_back(self, connection: _Connection, from_server: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while data := await from_server.read(65536):
                connection.client.write(data)
                await connection.client.drain()
        if not connection.is_forgotten:
            connection.client.close()
