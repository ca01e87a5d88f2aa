"""The traps of searching that only the whole can show: real vectors, requests as they come, and large answers."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any
from uuid import uuid4

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.conftest import Team
from tests.stack import Stack

NOTES = {
    "backups": "Snapshots of the customer database are kept for ninety days, and deleted after that.",
    "invoices": "Invoices go out on the first working day of each month.",
    "lisbon": "The office in Lisbon closes at six in the evening.",
    "terraform": "All cloud resources are described in Terraform; nothing is clicked together.",
    "survey": "Four hundred people answered the customer survey, most of them happily.",
    "cups": "Please wash your cups after lunch.",
    "oncall": "Whoever is on call carries the pager from Monday to Monday.",
    "pooler": "The connection pooler answers ECONNREFUSED while it restarts; wait five seconds.",
    "release": "We ship on Tuesdays and never on Fridays.",
    "rollback": "To go back, redeploy the tag before the bad one.",
    "hiring": "Candidates write a small program at home, and we discuss it together.",
    "tabs": "The style guide asks for four spaces and no tabs.",
}
UNRELATED = [
    "How do penguins raise their chicks in the Antarctic winter?",
    "Who painted the ceiling of the Sistine Chapel?",
    "recipe for a sourdough bread with walnuts",
    "Which moons does Saturn have?",
    "What is the best opening in chess against the Sicilian defence?",
    "symptoms of vitamin D deficiency",
]
# Each has one everyday word in common with a note.
BY_CHANCE = [
    "How many people live in Tokyo?",
    "When does the first train leave in the morning?",
    "four wheel drive cars with good mileage",
    "What happened on Monday 29 October 1929?",
    "How much do candidates for the presidency spend?",
    "cloud formations in the evening sky",
]


@pytest.fixture
def notes(team: Team) -> dict[str, str]:
    """Ids of the notes."""
    return {name: team.remember(text)["id"] for name, text in NOTES.items()}


# S1, S3


@pytest.mark.parametrize(
    ("question", "note"),
    [
        ("For how long do we hold on to copies of our customers' data before somebody removes them?", "backups"),
        ("what do I do when a deployment went wrong and I have to undo it?", "rollback"),
        ("when is the bill sent to the people who buy from us", "invoices"),
        ("Is there a weekday on which nothing may go live?", "release"),
        ("ECONNREFUSED", "pooler"),
        ("What are job applicants asked to do?", "hiring"),
    ],
)
def test_s1_a_whole_question_is_answered(team: Team, notes: dict[str, str], question: str, note: str) -> None:
    assert notes[note] in [found["id"] for found in team.find(question, k=3)]


def test_s3_an_unrelated_question_is_not_answered(team: Team, notes: dict[str, str]) -> None:
    """With the profile as it ships."""
    said = {question: [found["snippet"] for found in team.find(question)] for question in UNRELATED}
    assert {question: found for question, found in said.items() if found} == {}


def test_s3_a_word_in_common_by_chance_is_called_low(team: Team, notes: dict[str, str]) -> None:
    found = [found for question in BY_CHANCE for found in team.find(question)]
    assert found
    assert [result["snippet"] for result in found if result["relevance"] != "low"] == []


def test_s3_an_unrelated_question_is_not_answered_above_a_floor(team: Team, notes: dict[str, str]) -> None:
    """And what is related is found above the same floor."""
    knobs = {"knobs": {"fused_floor": 0.15, "vector_threshold": 0.3, "keyword_only_cap": 0.3}}
    assert team.ask("olga", "PUT", "/v1/search/profiles/user_search", knobs).status == 200
    for question in UNRELATED + BY_CHANCE:
        assert [found for found in team.find(question) if found["scores"]["hybrid"] < 0.15] == []
    for question in UNRELATED:
        assert team.find(question) == []
    assert team.find("how long are snapshots of the database kept?")[0]["id"] == notes["backups"]
    assert team.find("on which days do we ship?")[0]["id"] == notes["release"]


# S13, S16, S20


@pytest.mark.parametrize("query", ["🎊", "😀😀", "\u200b", "x" * 1000])
def test_s3_a_question_that_the_model_cannot_read_is_answered_by_what_holds_it(team: Team, query: str) -> None:
    """Not by what happens to be near to the vector of all such questions."""
    team.remember("x")
    team.remember("ok")
    reply = team.ask("ann", "POST", "/v1/search", {"query": query})
    assert (reply.status, reply.body["results"]) == (200, [])
    assert reply.body["degraded_reason"] == "no_known_token" or reply.body["mode"] == "substring"
    if query.strip("\u200b"):
        item = team.remember(f"On Friday we meet {query} as always.")["id"]
        assert [result["id"] for result in team.find(query)] == [item]


def test_s13_a_caller_sends_no_vectors(team: Team) -> None:
    for field in ("embedding", "model", "degraded_reason", "vector", "request_id"):
        reply = team.ask("ann", "POST", "/v1/search", {"query": "x", field: "[1]"})
        assert (reply.status, reply.body["errors"][0]["field"]) == (422, field)


def test_s16_an_answer_beyond_six_megabytes_is_refused_and_comes_in_parts(team: Team) -> None:
    """Nothing is cut silently: the same hundred come when less is asked for at a time."""
    blob = {"notes": ["y" * 1000] * 63}
    batch = [{"content": f"zebra number{n}x", "metadata": blob} for n in range(100)]
    for start in range(0, 100, 50):
        body = {"memories": batch[start : start + 50]}
        assert team.ask("ann", "POST", "/v1/write/memories/batch", body).status == 207
    whole = team.ask("ann", "POST", "/v1/search", {"query": "zebra", "k": 100})
    assert (whole.status, whole.body["code"]) == (413, "response_too_large")
    some = team.find("zebra", k=80)
    assert len({found["id"] for found in some}) == 80
    assert all(found["metadata"] == blob for found in some)


def test_s20_times_go_in_with_any_offset_and_come_out_in_utc(team: Team) -> None:
    written = team.remember("the zebra left", occurred_at="2026-02-01T05:29:00+05:30")
    item = team.ask("ann", "GET", f"/v1/search/items/{written['id']}").body
    assert datetime.fromisoformat(item["occurred_at"]) == datetime.fromisoformat("2026-01-31T23:59:00+00:00")
    [found] = team.find("zebra", filters={"occurred_before": "2026-01-31T16:00:00-08:00"})
    for moment in (item["occurred_at"], item["created_at"], item["updated_at"], found["created_at"]):
        assert moment.endswith(("Z", "+00:00"))
    assert team.find("zebra", filters={"occurred_after": "2026-02-01T00:00:00Z"}) == []
    reply = team.ask("ann", "POST", "/v1/search", {"query": "zebra", "filters": {"occurred_after": "2026-02-01"}})
    assert (reply.status, reply.body["code"]) == (422, "invalid")


# S18


@pytest.mark.parametrize(
    "filler",
    [
        "prose",
        "identifiers",
        "Chinese",
    ],
)
def test_s18_the_tail_of_a_full_chunk_counts_for_its_meaning(team: Team, filler: str) -> None:
    """What comes first takes more tokens than the model reads, where it is no prose."""
    before = {
        "prose": "The handbook of the department describes ordinary matters in ordinary words. " * 13,
        "identifiers": " ".join(f"0x{n * 2654435761 % 2**32:08x}" for n in range(100)),
        "Chinese": "这本手册用普通的话描述普通的事情。" * 60,
    }[filler][:1050]
    query = team.runtime.embedder.embed_query("penguins that keep their eggs warm")

    def similarity(tail: str) -> float:
        item = team.remember(f"{before}\n\n{tail}")["id"]
        vectors = team.rows("select vector::text from almagest.embeddings where item_id = %s", item)
        best: float = max(sum(a * b for a, b in zip(json.loads(vector), query, strict=True)) for vector in vectors)
        return best

    about, other = "Penguins keep their eggs warm on their feet.", "Accountants close the books of the quarter."
    assert similarity(about) > similarity(other) + 0.05


# Requests as they come

ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=30)  # lone surrogates and zero bytes too
ANY_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False),
              ANY_TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(ANY_TEXT, inner, max_size=3)),
    max_leaves=6,
)  # fmt: skip
FILTER_NAMES = [
    "kind", "type", "tags", "tags_any", "project", "client", "deal", "origin", "agent_name", "source_ref", "title",
    "conversation", "created_after", "created_before", "occurred_after", "occurred_before", "priority_min",
]  # fmt: skip
BODIES = st.fixed_dictionaries(
    {"query": st.one_of(ANY_TEXT, ANY_JSON)},
    optional={
        "k": st.one_of(st.integers(0, 101), ANY_JSON),
        "profile": st.one_of(ANY_TEXT, ANY_JSON),
        "filters": st.one_of(
            st.fixed_dictionaries({}, optional=dict.fromkeys(FILTER_NAMES, st.one_of(ANY_TEXT, ANY_JSON))), ANY_JSON
        ),
        "include_archived": st.one_of(st.booleans(), ANY_JSON),
        "explain": st.one_of(st.booleans(), ANY_JSON),
        "why_not": st.one_of(st.uuids().map(str), ANY_JSON),
    },
)
WIRE = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@WIRE
@given(body=BODIES)
def test_any_request_has_an_answer_or_a_problem_of_its_own_making(team: Team, body: Any) -> None:
    reply = team.ask("ann", "POST", "/v1/search", json.dumps(body))
    assert reply.status == 200 or (400 <= reply.status < 500 and reply.body["code"]), reply.text


@WIRE
@given(query=ANY_TEXT.filter(str.strip), names=st.lists(ANY_TEXT.filter(str.strip), min_size=1, max_size=3))
def test_any_text_in_every_member_is_only_text(team: Team, query: str, names: list[str]) -> None:
    """Well-formed members that hold lone surrogates, zero bytes and signs of every plane."""
    filters = {"tags": names, "type": names, "agent_name": names, "title": names[0], "source_ref": names[0]}
    for given_filters in ({}, {**filters, "conversation": names[0]}):
        body = {"query": query, "filters": given_filters, "explain": True}
        reply = team.ask("ann", "POST", "/v1/search", json.dumps(body))
        assert reply.status == 200 or (reply.status == 422 and reply.body["code"]), reply.text


@pytest.mark.parametrize("text", ["\0", "a\0b", "\ud800", "\udfff\ud800", "'; drop table x", "$$", "%s%L%I", "\\"])
def test_zero_bytes_and_surrogates_have_an_answer(team: Team, text: str) -> None:
    written = team.remember(f"zebra {text} x", tags=["a"])
    for body in (
        {"query": f"zebra {text}"},
        {"query": "zebra", "filters": {"tags": [f"a{text}"]}},
        {"query": "zebra", "filters": {"title": f"a{text}"}},
        {"query": "zebra", "profile": f"user_search{text}"},
    ):
        reply = team.ask("ann", "POST", "/v1/search", json.dumps(body))
        assert reply.status in (200, 422), reply.text
    assert [found["id"] for found in team.find(f"zebra {text}")] == [written["id"]]


# S17


@pytest.mark.slow
def test_s17_clients_search_while_others_write_and_erase(stack: Stack) -> None:
    """Over real sockets and in processes of their own: no error of any kind."""
    name = uuid4().hex[:8]
    end = time.monotonic() + 1.5

    def running(work: Callable[[httpx.Client, int], list[int]]) -> list[int]:
        headers = {"authorization": f"Bearer {stack.key}"}
        seen: list[int] = []
        with httpx.Client(base_url=stack.url, headers=headers, timeout=60) as client:
            done = 0
            while time.monotonic() < end:
                seen += work(client, done)
                done += 1
        return seen

    def searching(client: httpx.Client, done: int) -> list[int]:
        body = {"query": f"zebra {name} {done}", "explain": done % 2 == 0}
        return [client.post("/v1/search", json=body).status_code]

    def changing(client: httpx.Client, done: int) -> list[int]:
        written = client.post("/v1/write/memories", json={"content": f"zebra {name} {uuid4()}"})
        path = f"/v1/write/items/{written.json()['id']}"
        statuses = [written.status_code, client.post("/v1/search", json={"query": f"zebra {name}"}).status_code]
        return [*statuses, client.delete(path).status_code]

    with ThreadPoolExecutor(5) as pool:
        seen = list(pool.map(running, [searching, searching, searching, changing, changing]))
    assert all(seen)
    assert {status for statuses in seen for status in statuses} <= {200, 201}
