"""Three collections with judgements: LoCoMo (dev half), Cranfield and the judged set, as memories and questions."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.bench.places import DATA
from tests.quality.judged import read_notes, read_questions

LOCOMO_QUESTIONS = 759
CRANFIELD_QUESTIONS = 225
ADVERSARIAL = 5  # LoCoMo's category of questions whose answer is not in the conversation

Memory = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """A question and what answers it.

    Attributes
    ----------
    text
        As it is asked.
    grades
        Source reference -> grade, 1 or more; what is not listed is not relevant.
    kind
        What sort of question it is, in the collection's own words.
    filters
        Of the search.
    """

    text: str
    grades: dict[str, int]
    kind: str
    filters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Collection:
    """Memories, each with a source reference that is unique within the filters of a question, and questions."""

    name: str
    memories: list[Memory]
    questions: list[Question]


def read_all() -> list[Collection]:
    """All three, LoCoMo first."""
    return [read_locomo(), read_cranfield(), read_judged()]


def read_locomo() -> Collection:
    """Every turn a memory, found by its ``dia_id`` within the tag of its conversation.

    Raises
    ------
    ValueError
        When the questions are not those of other reports.
    """
    conversations = json.loads((DATA / "locomo" / "dev.json").read_text())
    memories = [memory for conversation in conversations for memory in _turns(conversation)]
    questions = [question for conversation in conversations for question in _asked(conversation)]
    return _checked(Collection("locomo", memories, questions), LOCOMO_QUESTIONS)


def read_cranfield() -> Collection:
    """Every abstract with a text a memory; a judgement's ``position`` is 1 for the best, and becomes grade 4.

    Raises
    ------
    ValueError
        When the questions are not those of other reports.
    """
    folder = DATA / "cranfield"
    grades: dict[int, dict[str, int]] = defaultdict(dict)
    for judged in json.loads((folder / "qrels.json").read_text()):
        grades[int(judged["query_num"])][judged["id"]] = 5 - judged["position"]
    memories = [
        {"content": document["body"], "title": document["title"], "type": "document", "origin": "upload"}
        | {"source_ref": str(document["id"])}
        for document in json.loads((folder / "docs.json").read_text())
        if document["body"]
    ]
    questions = [
        Question(asked["query"], grades[asked["query number"]], "question")
        for asked in json.loads((folder / "queries.json").read_text())
    ]
    return _checked(Collection("cranfield", memories, questions), CRANFIELD_QUESTIONS)


def read_judged() -> Collection:
    """The notes of an invented team, of ``tests/quality``."""
    memories = [{name: value for name, value in note.items() if name != "id"} for note in read_notes()]
    for memory, note in zip(memories, read_notes(), strict=True):
        memory["source_ref"] = note["id"]
    return Collection("judged", memories, [Question(q.question, q.answers, q.kind) for q in read_questions()])


def session_of(turn: str) -> str:
    """The session that a LoCoMo turn belongs to: ``D3`` of ``D3:12``."""
    return turn.partition(":")[0]


def _checked(collection: Collection, expected: int) -> Collection:
    if len(collection.questions) != expected:
        found = len(collection.questions)
        raise ValueError(f"{collection.name}: {found} questions instead of {expected}; figures could not be compared")
    return collection


def _turns(conversation: dict[str, Any]) -> Iterator[Memory]:
    tag, turns = conversation["sample_id"], conversation["conversation"]
    for name, session in turns.items():
        if not isinstance(session, list):
            continue
        said_at = datetime.strptime(turns[f"{name}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for position, turn in enumerate(session):
            caption = f" [{turn['blip_caption']}]" if turn.get("blip_caption") else ""
            yield {
                "content": f"{turn['speaker']}: {turn['text']}{caption}",
                "agent_name": turn["speaker"],
                "occurred_at": said_at.isoformat(),
                "origin": "chat",
                "source_ref": turn["dia_id"],
                "conversation": {"id": f"{tag}/{name}", "position": position},
                "tags": [tag],
            }


def _asked(conversation: dict[str, Any]) -> Iterator[Question]:
    """Questions that have evidence and an answer."""
    tag = conversation["sample_id"]
    turns = {memory["source_ref"] for memory in _turns(conversation)}
    for asked in conversation["qa"]:
        if asked.get("evidence") and asked["category"] != ADVERSARIAL:
            grades = dict.fromkeys(_evidence(asked["evidence"], turns), 1)
            yield Question(asked["question"], grades, str(asked["category"]), {"tags": [tag]})


def _evidence(written: Sequence[str], turns: set[str]) -> Iterator[str]:
    """Turn ids out of the hand-written evidence: ``D:11:26`` is meant as D11:26, and two name no turn at all."""
    for entry in written:
        for session, turn in re.findall(r"D:?(\d+):(\d+)", entry):
            if (identifier := f"D{session}:{turn}") in turns:
                yield identifier
