"""The gateway in front of PostgREST: what answers at a Supabase project's URL.

It strips `/rest/v1`, asks for an `apikey`, and gives PostgREST a token with the key's role. A new key (`sb_secret_…`,
`sb_publishable_…`) is opaque and only means something in `apikey`: in `Authorization` it is passed on like any token,
and PostgREST refuses it, because it is no JWT.
"""

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web

from infra.local.keys import Keys
from infra.local.ports import LOOPBACK

PREFIX = "/rest/v1"
# Headers that belong to one connection, or that aiohttp writes itself.
HOP_BY_HOP = frozenset({"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "date"})


class Gateway:
    """HTTP server on the loopback address.

    Parameters
    ----------
    upstream
        PostgREST's URL.
    keys
        The project's keys.
    """

    def __init__(self, upstream: str, keys: Keys) -> None:
        self.upstream = upstream
        self.keys = keys
        self.url = ""
        self._runner: web.AppRunner | None = None
        self._session: ClientSession | None = None

    async def start(self, port: int = 0) -> None:
        """Listen on `port`; 0 takes a free one, told by `url`."""
        self._session = ClientSession(
            auto_decompress=False,
            connector=TCPConnector(limit=0),
            timeout=ClientTimeout(total=None, connect=10),
        )
        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, port).start()
        self.url = f"http://{LOOPBACK}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Close every connection and stop listening."""
        if self._runner:
            await self._runner.cleanup()
        if self._session:
            await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path != PREFIX and not request.path.startswith(PREFIX + "/"):
            return _refuse(404, "no Route matched with those values")
        apikey = request.headers.get("apikey") or request.query.get("apikey")
        if not apikey:
            return _refuse(
                401, "No API key found in request", hint="No `apikey` request header or url param was found."
            )
        token = self.keys.token(apikey)
        if token is None:
            hint = "Double check your Supabase `anon` or `service_role` API key."
            return _refuse(401, "Invalid API key", hint=hint)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        headers.pop("apikey", None)
        headers.setdefault("Authorization", f"Bearer {token}")
        return await self._forward(request, headers)

    async def _forward(self, request: web.Request, headers: dict[str, str]) -> web.StreamResponse:
        assert self._session is not None  # noqa: S101 - set by start, before any request
        url = self.upstream + (request.raw_path.removeprefix(PREFIX) or "/")
        body = request.content if request.body_exists else None
        try:
            async with self._session.request(
                request.method, url, headers=headers, data=body, allow_redirects=False
            ) as upstream:
                response = web.StreamResponse(status=upstream.status, reason=upstream.reason)
                for name, value in upstream.headers.items():
                    if name.lower() not in HOP_BY_HOP:
                        response.headers.add(name, value)
                await response.prepare(request)
                async for piece in upstream.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response
        except ClientError:
            return _refuse(503, "The upstream server is not reachable")


def _refuse(status: int, message: str, **more: str) -> web.Response:
    return web.json_response({"message": message, **more}, status=status)
