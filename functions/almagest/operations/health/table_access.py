"""table_access: tables and functions can be used by whom they should, and by nobody else."""

from collections import Counter

from almagest.operations.health.check import Check, Found, Probe
from almagest.problems import Problem

# A fault that somebody has to mend by hand names this many at the most.
NAMED = 5

# How each fault is told, before the names of what has it.
_WORDS = {
    "missing": "missing tables",
    "unreadable": "not readable",
    "unwritable": "not writable",
    "unforced": "without forced row level security",
    "uncallable": "not callable by service_role",
    "uncallable_owner": "not callable by scheduled work",
    "uncallable_reader": "not callable by almagest_reader",
    "unreadable_reader": "not readable by almagest_reader",
    "unbound_reader": "bound by no policy",
    **{
        f"{kind}_{fault}": words.format(things)
        for kind, things in {"function": "functions", "policy": "policies", "constraint": "constraints"}.items()
        for fault, words in {"missing": "missing {}", "changed": "changed {}", "unexpected": "{} of others"}.items()
    },
}


def look(probe: Probe) -> Found:
    """Ask for each table, right, function, policy and constraint, and for the API by the request path's key.

    measured: what is not as it should be. threshold: none of it, since the system needs each.
    """
    faults = probe.health.table_faults() + probe.health.access_faults()
    doors = probe.health.open_doors()
    unanswered = _request_path(probe)
    troubles = [f"{words}: {_list(names)}" for fault, words in _WORDS.items() if (names := _with(fault, faults))]
    if doors:
        troubles.append(f"open to {_list(_roles(doors))}: {_list(sorted({name for _, name in doors}))}")
    if unanswered:
        troubles.append(f"the request path does not answer ({unanswered})")
    sentence = "; ".join(troubles) or "All tables are there, and closed to those who may not see them"
    return Found(
        "failed" if troubles else "ok",
        sentence[0].upper() + sentence[1:] + ".",
        measured=len(faults) + len(doors) + bool(unanswered),
        threshold=0,
        unit="faults",
        figures={
            **Counter(fault for _, fault in faults),
            "tables": probe.health.count_tables(),
            "faults": [{"name": name, "fault": fault} for name, fault in faults],
            "open": [{"role": role, "name": name} for role, name in doors],
            "request_path": unanswered or "ok",
        },
    )


def _with(fault: str, faults: list[tuple[str, str]]) -> list[str]:
    return [name for name, each in faults if each == fault]


def _request_path(probe: Probe) -> str | None:
    """The code of why the request path does not answer; None where it does."""
    try:
        probe.runtime.rpc.call("get_schema", None, {}, retry=True)
    except Problem as problem:
        return problem.code
    return None


def _roles(doors: list[tuple[str, str]]) -> list[str]:
    return sorted({role for role, _ in doors})


def _list(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


CHECK = Check("table_access", "Tables are there, readable, writable, and closed to others.", 30, look)
