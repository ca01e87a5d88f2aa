"""What the cost page is computed by."""

import math
from pathlib import Path

import pytest

from tests.bench.cost import DOLLARS_A_GB_SECOND, DOLLARS_A_REQUEST, dollars, lambda_costs, memory_of, room

ROOT = Path(__file__).parents[2]


def test_a_thousand_requests_by_hand() -> None:
    # 1,000 requests of 100 ms in 1 GB are 100 GB-seconds.
    assert dollars(100, 1024) == pytest.approx(100 * DOLLARS_A_GB_SECOND + 1000 * DOLLARS_A_REQUEST)
    # A begun millisecond is a whole one.
    assert dollars(10.2, 1024) == dollars(11, 1024) > dollars(10, 1024)
    assert dollars(10, 2048) > dollars(10, 1024)


def test_the_template_says_the_memory() -> None:
    assert 128 <= memory_of(ROOT / "template.yaml", "search") <= 10_240


def test_memory_by_a_parameter(tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    template.write_text(
        "Parameters: {SearchMemory: {Type: Number, Default: 1024}}\n"
        "Globals: {Function: {MemorySize: 512}}\n"
        "Resources:\n"
        "  SearchFunction: {Properties: {MemorySize: !Ref SearchMemory, Other: !If [A, !Ref B, !Sub c]}}\n"
        "  WriteFunction: {Properties: {}}\n"
    )
    assert memory_of(template, "search") == 1024
    assert memory_of(template, "write") == 512


def test_cold_starts_are_paid_for() -> None:
    starts = {"functions": {"search": {"warm": {"mean": 10.0}, "cold": 1000.0}}}
    speed = {"sizes": {"100000": {"warm": {"all": {"request": {"p50": 20.0, "p95": 40.0}}}}}}
    costs = lambda_costs(starts, {"search": 1024}, speed)
    assert costs["search"]["dollars"]["0.0"] == pytest.approx(dollars(10, 1024), abs=1e-6)
    assert costs["search"]["dollars"]["0.01"] == pytest.approx(dollars(20, 1024), abs=1e-6)
    assert costs["search, 100,000 chunks, p95"]["milliseconds"] == 40.0


def test_room_grows_with_the_chunks_and_texts_with_their_length() -> None:
    capacity = {
        "chunks": 100, "characters_a_chunk": 300,
        "parts": {"chunks": {"bytes": 1_000_000}, "embeddings_vector_1": {"bytes": 2_000_000}},
    }  # fmt: skip
    found = room(capacity, 200)
    assert found["measured texts"] == 6
    assert found["full chunks"] == 2 * (1 * 4 + 2)
    assert found["measured texts, hot"] == 4
    assert math.isclose(found["full chunks, hot"], 4)
