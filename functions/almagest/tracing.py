"""The id of the request in hand, for what is called on its behalf: it goes along from the URL to the database."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_request_id: ContextVar[str | None] = ContextVar("request_id", default=None)


@contextmanager
def request(request_id: str) -> Iterator[None]:
    """Do the enclosed work for a request of this id."""
    token = _request_id.set(request_id)
    try:
        yield
    finally:
        _request_id.reset(token)


def request_id() -> str | None:
    """Id of the request that the current work is for; None outside of one."""
    return _request_id.get()
