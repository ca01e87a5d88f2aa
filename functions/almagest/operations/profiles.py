"""How an org searches: its profiles, for owners and admins. A caller of None is the system, which names the org."""

from typing import Any

from almagest.models.caller import Caller
from almagest.models.profiles import DescribedProfile, Profile, ProfileList, ProfileReset, ProfileWrite
from almagest.runtime import Runtime


def list_profiles(runtime: Runtime, caller: Caller | None, org: str | None = None) -> ProfileList:
    """The profiles that searches may name."""
    return ProfileList.model_validate(_call(runtime, "list_profiles", caller, org, {}))


def get_profile(runtime: Runtime, caller: Caller | None, name: str, org: str | None = None) -> DescribedProfile:
    """One profile, with what its knobs may be.

    Raises
    ------
    Problem
        404 `unknown_profile`.
    """
    return DescribedProfile.model_validate(_call(runtime, "get_profile", caller, org, {"name": name}))


def put_profile(
    runtime: Runtime, caller: Caller | None, name: str, request: ProfileWrite, org: str | None = None
) -> Profile:
    """Set the org's own knobs, in place of those it had; the next search uses them.

    Raises
    ------
    Problem
        422 `invalid_knobs`, with each knob that is unknown or has a bad value.
    """
    fields = {"name": name, **request.model_dump(mode="json")}
    return Profile.model_validate(_call(runtime, "put_profile", caller, org, fields))


def delete_profile(runtime: Runtime, caller: Caller | None, name: str, org: str | None = None) -> ProfileReset:
    """Take the org's own knobs out of a profile."""
    return ProfileReset.model_validate(_call(runtime, "delete_profile", caller, org, {"name": name}))


def _call(
    runtime: Runtime, function: str, caller: Caller | None, org: str | None, fields: dict[str, Any]
) -> dict[str, Any]:
    # Made again when the connection dies: each of them has the same effect however often it is called.
    named = {"org": org} if org else {}
    return runtime.rpc.call(function, caller, {**named, **fields}, retry=True)
