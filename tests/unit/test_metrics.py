"""The measures, against values worked out by hand, and the judged set that they are used with."""

from collections import Counter
from datetime import datetime
from math import log2

import pytest

from tests.quality.judged import read_notes, read_questions
from tests.quality.metrics import mean, ndcg_at, recall_at, reciprocal_rank

GRADES = {"a": 3, "b": 2, "c": 1}


class TestNdcg:
    @pytest.mark.parametrize(
        ("ranking", "k", "expected"),
        [
            (["a", "b", "c"], 10, 1),
            (["x", "y"], 10, 0),
            ([], 10, 0),
            (["b", "a", "c"], 10, (3 + 7 / log2(3) + 1 / 2) / (7 + 3 / log2(3) + 1 / 2)),
            (["x", "a"], 1, 0),
            (["a", "x"], 1, 1),
            (["a", "a", "b", "c"], 10, 1),
        ],
    )
    def test_values(self, ranking: list[str], k: int, expected: float) -> None:
        assert ndcg_at(k, ranking, GRADES) == pytest.approx(expected)

    def test_nothing_to_find(self) -> None:
        with pytest.raises(ValueError, match="nothing is relevant"):
            ndcg_at(10, ["a"], {"a": 0})


def test_recall() -> None:
    assert recall_at(2, ["a", "x", "b"], {"a", "b"}) == 0.5
    assert recall_at(3, ["a", "x", "b"], ["b", "a", "a"]) == 1
    with pytest.raises(ZeroDivisionError):
        recall_at(1, ["a"], [])


def test_reciprocal_rank() -> None:
    assert reciprocal_rank(["x", "b", "a"], {"a", "b"}) == 0.5
    assert reciprocal_rank(["x"], {"a"}) == 0
    assert mean([1, 0.5, 0]) == 0.5


class TestJudgedSet:
    def test_size_and_kinds(self) -> None:
        questions = read_questions()
        kinds = Counter(question.kind for question in questions)
        assert kinds.keys() == {"paraphrase", "keyword", "identifier", "who_when", "multi"}
        assert min(kinds.values()) >= 10
        assert len({question.id for question in questions}) == len(questions) >= 64

    def test_notes_are_whole(self) -> None:
        notes = read_notes()
        assert len({note["id"] for note in notes}) == len({note["content"] for note in notes}) == len(notes) >= 220
        for note in notes:
            assert note["content"].strip()
            assert note["tags"]
            assert note["agent_name"]
            assert 0 <= note["importance"] <= 1
            assert datetime.fromisoformat(note["occurred_at"]).tzinfo

    def test_answers_exist(self) -> None:
        ids = {note["id"] for note in read_notes()}
        for question in read_questions():
            assert question.answers.keys() <= ids, question.id
            assert set(question.answers.values()) <= {1, 2, 3}
            assert 3 in question.answers.values(), question.id
