"""table_access: the tables can be read and written by whom they should, and by nobody else."""

from collections import Counter

from almagest.operations.health.check import Check, Found, Probe
from almagest.problems import Problem

# A fault that somebody has to mend by hand names this many at the most.
NAMED = 5

_WORDS = {
    "missing": "missing",
    "unreadable": "not readable",
    "unwritable": "not writable",
    "unforced": "without forced row level security",
}


def look(probe: Probe) -> Found:
    """Ask for each table by the role of scheduled work, and for the API by the request path's key.

    measured: tables that are as they should be. threshold: all of them, since the system needs each.
    """
    faults = probe.health.table_faults()
    doors = probe.health.open_doors()
    unanswered = _request_path(probe)
    tables = probe.health.count_tables() + sum(fault == "missing" for _, fault in faults)
    accessible = tables - len({name for name, _ in faults})
    troubles = [f"{_list([name for name, each in faults if each == fault])} {_verb(faults, fault)} {words}"
                for fault, words in _WORDS.items() if any(each == fault for _, each in faults)]  # fmt: skip
    if doors:
        troubles.append(f"{_list(sorted({name for _, name in doors}))} can be reached by {_list(_roles(doors))}")
    if unanswered:
        troubles.append(f"the request path does not answer ({unanswered})")
    sentence = "; ".join(troubles) or f"All {tables} tables are there, and closed to those who may not see them"
    return Found(
        "failed" if troubles else "ok",
        sentence[0].upper() + sentence[1:] + ".",
        measured=accessible,
        threshold=tables,
        unit="tables",
        figures={
            **Counter(fault for _, fault in faults),
            "faults": [{"table": name, "fault": fault} for name, fault in faults],
            "open": [{"role": role, "name": name} for role, name in doors],
            "request_path": unanswered or "ok",
        },
    )


def _request_path(probe: Probe) -> str | None:
    """The code of why the request path does not answer; None where it does."""
    try:
        probe.runtime.rpc.call("get_schema", None, {}, retry=True)
    except Problem as problem:
        return problem.code
    return None


def _roles(doors: list[tuple[str, str]]) -> list[str]:
    return sorted({role for role, _ in doors})


def _verb(faults: list[tuple[str, str]], fault: str) -> str:
    return "is" if sum(each == fault for _, each in faults) == 1 else "are"


def _list(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


CHECK = Check("table_access", "Tables are there, readable, writable, and closed to others.", 30, look)
