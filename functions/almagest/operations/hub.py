"""What people are told in the Hub, and what each of them has read or dismissed of it."""

from uuid import UUID

from almagest.models.caller import Caller
from almagest.models.hub import HubEntry, HubPage, HubState, Mark, Severity
from almagest.models.search import DEFAULT_PAGE
from almagest.runtime import Runtime


def list_hub(
    runtime: Runtime,
    caller: Caller,
    *,
    state: HubState = "open",
    severity: Severity | None = None,
    include_dismissed: bool = False,
    cursor: str | None = None,
    limit: int = DEFAULT_PAGE,
) -> HubPage:
    """One page of the entries that are for the caller, the worst first and of them the newest.

    Raises
    ------
    Problem
        422 `invalid_cursor`.
    """
    request = {
        "state": state,
        "severity": severity,
        "include_dismissed": include_dismissed,
        "cursor": cursor,
        "limit": limit,
    }
    return HubPage.model_validate(runtime.rpc.call("list_hub", caller, request, retry=True))


def mark_hub(runtime: Runtime, caller: Caller, entry: UUID, mark: Mark, *, taken_back: bool = False) -> HubEntry:
    """Mark an entry for the caller's user, or take the mark back; a second time, it stays as it is.

    Raises
    ------
    Problem
        404 when there is no such entry for the caller, 403 `no_user` for a caller who is no person.
    """
    request = {"id": str(entry), "mark": mark, "taken_back": taken_back}
    return HubEntry.model_validate(runtime.rpc.call("mark_hub", caller, request, retry=True))
