"""canary_quality: known memories come back first, and as near as when they were planted."""

from almagest.models.search import SearchResponse
from almagest.operations.health.canaries import CANARIES, VERSION
from almagest.operations.health.check import Check, Found, Probe
from almagest.operations.health.planted import NotPlanted, PlantedSet

NAME = "canaries"
# The database keeps vectors in half precision, which moves a cosine in the fourth digit; what moves it in the second is
# another vector.
TOLERANCE = 0.02


def canaries(probe: Probe) -> PlantedSet:
    """The canaries."""
    return PlantedSet(probe, NAME, VERSION, CANARIES)


def look(probe: Probe) -> Found:
    """Ask for each canary. measured: how many come first at their similarity. threshold: all of them.

    They are planted by the first run, and when the model has changed; one that has gone since is not put back in
    silence, which is for remediation to do.
    """
    from almagest.embedding.embedder import EmbeddingUnavailable

    planted = canaries(probe)
    try:
        if planted.noted is None:
            planted.plant(unless=lambda: planted.noted is not None)
    except EmbeddingUnavailable as error:
        return _failed(f"The canaries cannot be told without an embedder ({error.reason}).", error.reason)
    except NotPlanted:
        return _failed("The canaries could not be stored with their vectors.", "not_planted")
    with planted.looked_at():
        return _judge(planted)


def _judge(planted: PlantedSet) -> Found:
    noted = planted.noted
    expected: list[float] = noted["similarities"] if noted else []
    items = planted.items()
    seen: list[dict[str, float | int | None]] = []
    for number, (item, similarity) in enumerate(zip(items, expected, strict=True)):
        rank, found = _place(planted.ask(number, 10), item)
        seen.append({"rank": rank, "similarity": found, "expected": similarity})
    good = sum(_is_as_planted(each) for each in seen)
    missing = planted.missing()
    gone = items.count(None)
    troubles = [f"{_of_all(count)} {state}" for state, count in missing.items()]
    if bad := len(CANARIES) - gone - good:
        come = "comes" if bad == 1 else "come"
        troubles.append(f"{bad} of {len(CANARIES)} {come} back at another place or similarity")
    return Found(
        "failed" if troubles else "ok",
        f"Canaries: {', '.join(troubles)}." if troubles else "All canaries come first, as near as when planted.",
        measured=good,
        threshold=len(CANARIES),
        unit="canaries",
        figures={"canaries": seen, "gone": gone, "missing": dict(missing), "tolerance": TOLERANCE},
    )


def _of_all(count: int) -> str:
    return f"{count} of {len(CANARIES)} {'is' if count == 1 else 'are'}"


def _place(answer: SearchResponse, item: object) -> tuple[int | None, float | None]:
    for rank, result in enumerate(answer.results, start=1):
        if result.id == item:
            return rank, result.scores.vector
    return None, None


def _is_as_planted(seen: dict[str, float | int | None]) -> bool:
    similarity, expected = seen["similarity"], seen["expected"]
    if seen["rank"] != 1 or similarity is None or expected is None:
        return False
    return abs(similarity - expected) <= TOLERANCE


def _failed(sentence: str, reason: str) -> Found:
    return Found("failed", sentence, measured=0, threshold=len(CANARIES), unit="canaries", figures={"reason": reason})


CHECK = Check("canary_quality", "Known memories come back first, and as near as when they were planted.", 60, look)
