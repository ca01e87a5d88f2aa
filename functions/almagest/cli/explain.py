"""How an answer came about, as tables that a person can read."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from almagest.cli import output
from almagest.cli.context import current_caller, open_runtime
from almagest.cli.options import Json, uuid
from almagest.cli.results import told_mode

if TYPE_CHECKING:
    from almagest.models.traces import Trace, TraceCandidate, TraceItem

# Enough to see what came next; `--json` has them all.
STAGES = ("filter", "terms", "keyword", "vector", "substring", "rank", "diversify", "read")
SHOWN_CANDIDATES = 25
LEGS = ("keyword", "vector", "metadata")
ASKED_ONLY = "question_turn"
LEAST_SHARE = 0.0005  # what three decimals tell


def trace(
    trace_id: Annotated[
        UUID, typer.Argument(parser=uuid, metavar="TRACE", help="The trace's id, as search prints it.")
    ],
    as_json: Json = False,
) -> None:
    """Tell how one of your own searches came about: legs, candidates, scores, cuts, time."""
    from almagest.operations.search import get_trace

    with open_runtime() as runtime:
        found = get_trace(runtime, current_caller(runtime), trace_id)
    output.print_json(found) if as_json else print_trace(found)


def print_trace(trace: "Trace") -> None:
    """The whole account: what was asked, what the legs sent, what became of each candidate, and how long it took."""
    output.print_record(_summary(trace))
    output.print_rows(_leg_rows(trace), ("leg", "weight", "sent"), empty="No leg answered.")
    rows = list(candidate_rows(trace))
    columns = ("result", "item", "fused", "strength", "final", "fate")
    output.print_rows(rows[:SHOWN_CANDIDATES], columns, empty="Nothing was found.")
    if len(rows) > SHOWN_CANDIDATES:
        output.print_message(f"{len(rows) - SHOWN_CANDIDATES} more candidates are in the trace: see --json.")
    if trace.mmr:
        output.print_rows(_mmr_rows(trace), ("diversified", "decision"), empty="")
    output.print_rows(stage_rows(trace.stages_ms), ("stage", "ms", "after"), empty="No time was taken.")


def print_why_not(answer: Mapping[str, Any]) -> None:
    """At which step an item fell out of a search, with the figures that decided it."""
    figures = {name: value for name, value in answer.items() if name not in ("item", "step", "reason") and value != {}}
    output.print_record({"why not": answer["item"], "step": answer["step"], "reason": answer["reason"], **figures})


def candidate_rows(trace: "Trace") -> Iterator[dict[str, Any]]:
    """A row for each candidate: its place in the answer, the parts of its score, and what became of it."""
    for candidate, place in _placed(trace):
        yield {
            "result": place,
            "item": _named(candidate),
            "fused": _sum(candidate, trace.knobs),
            "strength": candidate.strength,
            "final": candidate.final,
            "fate": candidate.cut or _fate(candidate.rank or 0, place, len(trace.results)),
        }


def _placed(trace: "Trace") -> Iterator[tuple["TraceCandidate", int | None]]:
    """Each candidate with its place in the answer: results name items alone, of which several slices may answer, but
    come in the order of the candidates.
    """
    results = [result.item for result in trace.results]
    passed = 0
    for candidate in trace.candidates:
        is_next = not candidate.cut and results[passed : passed + 1] == [candidate.item]
        passed += is_next
        yield candidate, passed if is_next else None


def _fate(rank: int, place: int | None, results: int) -> str:
    """What diversification made of a rank."""
    if place is not None:
        return "answer" if place == rank else f"answer, ranked {rank}"
    return f"ranked {rank}, resembles a result" if rank <= results else f"ranked {rank}"


def shares(candidate: "TraceCandidate", knobs: Mapping[str, Any]) -> dict[str, float]:
    """What each leg and boost gave to the fused score, before a turn that only asks lost a part of it.

    The keyword leg has what is left, since its part may have been capped; so do the ranks of reciprocal rank fusion,
    which does not add scores up. Where boosts have brought the sum to 1, where it ends, what is left may be less than
    what was given: there the keyword leg has what its score gives, and of ranks nothing is known.
    """
    boosts = candidate.boosts or {}
    added = {boost: share for boost, share in boosts.items() if boost != ASKED_ONLY}
    given = {} if _by_ranks(knobs) else _leg_shares(candidate, knobs)
    keyword = given.pop("keyword", 0)
    left = (candidate.hybrid or 0) / boosts.get(ASKED_ONLY, 1) - sum(given.values()) - sum(added.values())
    if _is_full(candidate):
        left = 0 if _by_ranks(knobs) else max(left, keyword)
    parts = {"ranks" if _by_ranks(knobs) else "keyword": left, **given, **added}
    return {name: part for name, part in parts.items() if part >= LEAST_SHARE}


def _by_ranks(knobs: Mapping[str, Any]) -> bool:
    return knobs.get("fusion") == "rrf"


def _is_full(candidate: "TraceCandidate") -> bool:
    """Whether boosts have brought the fused score to 1, above which it does not go."""
    return (candidate.hybrid or 0) >= 1 and any(name != ASKED_ONLY for name in candidate.boosts or {})


def _leg_shares(candidate: "TraceCandidate", knobs: Mapping[str, Any]) -> dict[str, float]:
    """What each leg gives to a weighted sum."""
    scores = {leg: score for leg in LEGS if (score := getattr(candidate, leg)) is not None}
    weights = {leg: knobs.get(f"{leg}_weight", 0) for leg in scores}
    total = sum(weights.values()) or 1
    words_alone = scores.get("vector", 1) < knobs.get("vector_threshold", 0) and "identifier" not in (
        candidate.boosts or {}
    )
    if words_alone and "keyword" in scores:
        scores["keyword"] = min(scores["keyword"], knobs.get("keyword_only_cap", 1))
    return {leg: weights[leg] / total * score for leg, score in scores.items()}


def _sum(candidate: "TraceCandidate", knobs: Mapping[str, Any]) -> str:
    if candidate.hybrid is None:
        return ""
    given = shares(candidate, knobs)
    parts = [f"{part:.3f} {name}" for name, part in given.items()]
    asked = (candidate.boosts or {}).get(ASKED_ONLY)
    told = f", × {asked:g} since it only asks" if asked else ""
    if _is_full(candidate) and _by_ranks(knobs):
        parts, told = ["ranks", *parts], told + ", at most 1"
    elif sum(given.values()) * (asked or 1) - candidate.hybrid >= LEAST_SHARE:
        told += ", at most 1"
    return f"{candidate.hybrid:.3f} = {' + '.join(parts) or 0}{told}"


def _summary(trace: "Trace") -> dict[str, Any]:
    knobs = trace.knobs
    limits = {
        "threshold": "vector_threshold",
        "floor": "fused_floor",
        "standard": "standard",
        "high": "high",
        "strength from": "strength_low",
        "lambda": "mmr_lambda",
    }
    known = {
        "query": trace.query,
        "mode": told_mode(trace.mode, trace.degraded_reason),
        "profile": trace.profile,
        "limits": ", ".join(f"{name} {knobs[knob]:g}" for name, knob in limits.items() if knob in knobs),
        "filters": trace.filters,
        "terms": " ".join(trace.terms),
        "keyword leg": {None: None, True: "exact", False: "pruned, may have missed something"}[trace.exact],
        "candidates": trace.found,
        "hidden by now": trace.hidden,
        "trace": trace.id,
    }
    return {name: value for name, value in known.items() if value or name == "candidates"}


def _leg_rows(trace: "Trace") -> list[dict[str, Any]]:
    return [
        {"leg": leg, "weight": trace.knobs.get(f"{leg}_weight"), "sent": trace.legs[leg]} for leg in sorted(trace.legs)
    ]


def _mmr_rows(trace: "Trace") -> Iterator[dict[str, Any]]:
    for entry in trace.mmr:
        figures = (f"{name} {_figure(value)}" for name, value in entry.items() if name not in ("item", "title"))
        yield {"diversified": entry.get("title") or entry.get("item"), "decision": ", ".join(figures)}


def stage_rows(times: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """A row for each stage in the order in which they run: how long it took, and when it ended."""
    end = 0.0
    for stage in sorted(times, key=lambda name: STAGES.index(name) if name in STAGES else len(STAGES)):
        end += times[stage]
        yield {"stage": stage, "ms": f"{times[stage]:.2f}", "after": f"{end:.2f}"}


def _named(item: "TraceItem") -> str:
    return f"{item.title}\n{item.item}" if item.title else str(item.item)


def _figure(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
