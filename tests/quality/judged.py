"""The judged set: half a year of notes of an invented team, and questions with the notes that answer them.

A question's ``answers`` are note id -> grade: 3 answers it, 2 answers a part of it, 1 helps. Notes that are not listed
were read and judged not to answer, those that share words with the question included.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Question:
    """One question; ``kind`` is paraphrase, keyword, identifier, who_when or multi."""

    id: str
    question: str
    kind: str
    answers: dict[str, int]


def read_notes() -> list[dict[str, Any]]:
    """Notes with the fields of a memory, and an ``id``."""
    found: list[dict[str, Any]] = json.loads((_HERE / "notes.json").read_text())
    return found


def read_questions() -> list[Question]:
    """Questions in their order."""
    return [Question(**question) for question in json.loads((_HERE / "questions.json").read_text())]
