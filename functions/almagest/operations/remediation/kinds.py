"""Of which kinds a check's faults are: one of another kind is news, more or fewer of the same kind are not."""

from typing import Any

from almagest.operations.health.orphaned_embeddings import KINDS

# Figures that say in a word what is wrong.
_WORDS = ("reason", "error", "failed_at", "request_path")


def kinds_found(figures: dict[str, Any]) -> list[str]:
    """Names of the kinds of fault that stand in a check's figures, in alphabetical order."""
    kinds = {f"{name}: {figures[name]}" for name in _WORDS if figures.get(name) not in (None, "ok")}
    kinds |= {kind for kind in (*KINDS, "gone") if figures.get(kind)}
    kinds |= {str(late) for late in figures.get("late", ())}
    kinds |= {str(each["fault"]) for each in figures.get("faults", ())}
    if figures.get("open"):
        kinds.add("open")
    return sorted(kinds)
