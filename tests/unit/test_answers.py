"""What a person is told to do follows from what was found, where that says it."""

import pytest

from almagest.operations.health.registry import CHECKS
from almagest.operations.remediation.answers import ANSWERS
from almagest.operations.remediation.kinds import kinds_found
from almagest.operations.remediation.run import _state


def test_every_check_has_its_answer() -> None:
    assert set(ANSWERS) == set(CHECKS)


@pytest.mark.parametrize(
    ("check", "figures", "told", "not_told"),
    [
        ("table_access", {"request_path": "misconfigured"}, "secret key", "reapply"),
        ("table_access", {"request_path": "schema_mismatch"}, "`almagest migrate`, then", "status"),
        ("table_access", {"request_path": "database_unavailable"}, "project's status", "reapply"),
        ("table_access", {"request_path": "ok", "faults": [{"fault": "unforced"}]}, "--reapply", "backup"),
        ("table_access", {"faults": [{"fault": "missing"}]}, "backup", "reapply"),
        ("table_access", {"open": [{"role": "anon", "name": "almagest.items"}]}, "who opened it", "backup"),
        ("embedding_function", {"reason": "model_missing"}, "Deploy", "memory"),
        ("embedding_function", {"cosines": [0.1]}, "memory", "nothing"),
        ("orphaned_embeddings", {"indexes_changed": 1}, "Ask who", "jobs run"),
        ("orphaned_embeddings", {"zero_vectors": 1}, "See which kinds", "Ask who"),
        ("staleness", {"late": ["job.retention"]}, "jobs history", "import"),
        ("staleness", {"late": ["index"]}, "import", "jobs history"),
    ],
)
def test_what_is_to_be_done_follows_the_cause(check: str, figures: dict[str, object], told: str, not_told: str) -> None:
    advice = ANSWERS[check].advice(kinds_found(figures))
    assert told in advice
    assert not_told not in advice


def test_kinds() -> None:
    assert kinds_found({"request_path": "ok", "reason": None, "late": [], "faults": [], "open": [], "gone": 0}) == []
    assert kinds_found(
        {"failed_at": "write", "late": ["index"], "faults": [{"fault": "missing"}] * 2, "open": [1], "zero_vectors": 3}
    ) == ["failed_at: write", "index", "missing", "open", "zero_vectors"]


@pytest.mark.parametrize(
    ("before", "after", "error", "state"),
    [
        ({"a": 2}, {"a": 0, "done": {}}, None, "mended"),
        ({"a": 2}, {"a": 0, "done": {"waiting": 1}}, None, "left"),
        ({"a": 2}, {"a": 2, "done": {"waiting": 2}}, None, "left"),  # an attempt that was taken up
        ({"a": 2}, {"a": 1, "done": {}}, None, "left"),
        ({"a": 2}, {"a": 2, "done": {}}, None, "unchanged"),
        ({"a": 2}, {"a": 3, "done": {}}, None, "unchanged"),  # it got worse meanwhile
        ({"a": 2}, {}, "QueryCanceled 57014", "failed"),
    ],
)
def test_how_an_action_ended(before: dict[str, int], after: dict[str, object], error: str | None, state: str) -> None:
    assert _state(before, after, error) == state
