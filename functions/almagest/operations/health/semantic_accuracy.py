"""semantic_accuracy: questions in other words find the memories that answer them."""

from almagest.operations.health.check import Check, Found, Probe, Status
from almagest.operations.health.paraphrases import PAIRS, VERSION
from almagest.operations.health.planted import NotPlanted, PlantedSet

NAME = "paraphrases"
# The shipped model answers all but one or two of the twenty at first place; a model that is broken, or words alone, a
# few.
THRESHOLD = 0.8
# Below this, most questions in other words go unanswered.
FAILED_BELOW = 0.5
TOP = 3


def paraphrases(probe: Probe) -> PlantedSet:
    """The paraphrase set."""
    return PlantedSet(probe, NAME, VERSION, PAIRS)


def look(probe: Probe) -> Found:
    """Plant the set where it is missing, and ask. measured: the share of questions whose answer comes first."""
    from almagest.embedding.embedder import EmbeddingUnavailable

    planted = paraphrases(probe)
    try:
        if not planted.is_whole():
            planted.plant(unless=planted.is_whole)
    except EmbeddingUnavailable as error:
        return _failed(f"The memories to be found cannot be embedded ({error.reason}).", error.reason)
    except NotPlanted:
        return _failed("The memories to be found could not be stored with their vectors.", "not_planted")
    with planted.looked_at():
        return _judge(planted)


def _judge(planted: PlantedSet) -> Found:
    first = among = 0
    modes: dict[str, int] = {}
    for number, item in enumerate(planted.items()):
        answer = planted.ask(number, TOP)
        modes[answer.mode] = modes.get(answer.mode, 0) + 1
        ids = [result.id for result in answer.results]
        first += ids[:1] == [item]
        among += item in ids
    share = first / len(PAIRS)
    return Found(
        _status(share),
        f"{first} of {len(PAIRS)} questions in other words find their answer first, {among} among the first {TOP}.",
        measured=share,
        threshold=THRESHOLD,
        unit="share",
        figures={"questions": len(PAIRS), "first": first, f"top_{TOP}": among, "modes": modes},
    )


def _status(share: float) -> Status:
    return "ok" if share >= THRESHOLD else "degraded" if share >= FAILED_BELOW else "failed"


def _failed(sentence: str, reason: str) -> Found:
    return Found("failed", sentence, threshold=THRESHOLD, unit="share", figures={"reason": reason})


CHECK = Check("semantic_accuracy", "Questions in other words find the memories that answer them.", 90, look)
