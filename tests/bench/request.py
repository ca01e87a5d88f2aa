"""Whole requests: the search operation with its embedding, through gateway and PostgREST, as the function runs it."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from almagest.models.call import Call
from almagest.models.caller import Caller
from almagest.models.search import SearchRequest
from almagest.operations.search import search
from almagest.runtime import Runtime
from almagest.settings import Settings
from infra.local.gateway import Gateway
from infra.local.keys import Keys
from infra.local.postgrest import Postgrest, find_postgrest, install_postgrest
from tests.bench.places import CACHE


@contextmanager
def served(authenticator_url: str) -> Iterator[Runtime]:
    """Serve a database as a Supabase project, and give the runtime of a function that uses it, its model loaded."""
    keys = Keys.create()
    postgrest = Postgrest(_program(), authenticator_url, keys.jwt_secret, CACHE / "postgrest.log")
    postgrest.start()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    gateway = Gateway(postgrest.url, keys)
    try:
        asyncio.run_coroutine_threadsafe(gateway.start(), loop).result(30)
        runtime = Runtime.from_settings(Settings(supabase_url=gateway.url, supabase_key=SecretStr(keys.secret)))
        runtime.embedder.embed_query("ready")
        yield runtime
        runtime.rpc.close()
    finally:
        asyncio.run_coroutine_threadsafe(gateway.stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        postgrest.stop()


def ask(runtime: Runtime, caller: dict[str, Any], text: str, k: int) -> Any:
    """Run one search as an operation."""
    return search(runtime, Caller.model_validate(caller), SearchRequest(query=text, k=k), Call(request_id="bench"))


def _program() -> Path:
    directory = Path(sys.prefix) / "share" / "almagest"
    directory.mkdir(parents=True, exist_ok=True)
    return find_postgrest(directory) or install_postgrest(directory)
