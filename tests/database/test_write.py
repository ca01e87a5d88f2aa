"""Writing: once only, whole or not at all, undone as if it had never been, and erased without residue."""

import random
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from almagest.ingestion.chunk import chunk
from tests.database.concurrency import at_once, overlap
from tests.database.support import (
    MODEL,
    Caller,
    Org,
    Refused,
    Server,
    chunks_of,
    digest,
    ids,
    memory,
    one_hot,
    search,
    unique_key,
    write,
    write_one,
)


def change(server: Server, caller: Caller, item: str, version: int, **changes: Any) -> dict[str, Any]:
    """Edit an item; content comes with its hash and one chunk."""
    request: dict[str, Any] = {"id": item, "version": version, "changes": changes, "idempotency": unique_key()}
    if "content" in changes:
        request |= {"content_hash": digest(changes["content"]), "chunks": chunks_of([changes["content"]], [one_hot(9)])}
        request |= {"model": MODEL}
    answer: dict[str, Any] = server.call("update_item", caller, request)
    return answer


def act(server: Server, name: str, caller: Caller, item: str, **fields: Any) -> dict[str, Any]:
    """Run one of the functions that take an item's id."""
    answer: dict[str, Any] = server.call(name, caller, {"id": item, "idempotency": unique_key(), **fields})
    return answer


def counts(server: Server) -> dict[str, int]:
    """Rows in every table that a write fills."""
    tables = (
        "items",
        "item_versions",
        "item_tags",
        "chunks",
        "lexical",
        "embeddings",
        "strength_signals",
        "pins",
        "audit_log",
        "idempotency_keys",
        "embedding_models",
    )
    return {table: server.value(f"select count(*) from almagest.{table}") for table in tables}


# A new memory


def test_a_memory_is_stored_with_all_that_was_said_of_it(server: Server, org: Org) -> None:
    org.project("website")
    org.client("north")
    org.deal("north-one", "north")
    item = write_one(
        server,
        org.owner,
        "Use Postgres for the queue.",
        one_hot(1),
        title="Queue",
        type="decision",
        importance=0.9,
        tags=["queue", "postgres"],
        origin="chat",
        source_ref="thread-7",
        conversation={"id": "standup", "position": 3},
        occurred_at="2026-03-01T10:00:00+02:00",
        private=True,
        project="website",
        deal="north-one",
        agent_name="scribe",
        metadata={"ticket": {"id": 7}},
    )
    stored = server.call("get_item", org.owner, {"id": item})

    created = stored.pop("created_at")
    assert stored.pop("updated_at") == stored.pop("validated_at") == created
    assert created.endswith("Z")
    assert stored == {
        "id": item,
        "kind": "memory",
        "type": "decision",
        "title": "Queue",
        "summary": None,
        "content": "Use Postgres for the queue.",
        "importance": 0.9,
        "tags": ["postgres", "queue"],
        "origin": "chat",
        "source_ref": "thread-7",
        "conversation": {"id": "standup", "position": 3},
        "occurred_at": "2026-03-01T08:00:00.000000Z",
        "private": True,
        "project": "website",
        "client": "north",
        "deal": "north-one",
        "agent_name": "scribe",
        "metadata": {"ticket": {"id": 7}},
        "scope": "library",
        "state": "active",
        "tier": "hot",
        "evergreen": False,
        "version": 1,
        "index_status": "search_ready",
        "index_error": None,
        "archived_at": None,
    }


def test_what_is_left_out_has_defaults(server: Server, org: Org) -> None:
    names = (
        "title type importance tags origin source_ref conversation occurred_at private project client deal"
        " agent_name metadata"
    )
    nulls = dict.fromkeys(names.split())
    first = write_one(server, org.owner, "something")
    second = write_one(server, org.owner, "something else", **nulls)
    for item in (first, second):
        stored = server.call("get_item", org.owner, {"id": item})
        assert (stored["type"], stored["origin"], stored["importance"]) == ("note", "agent", 0.5)
        assert (stored["tags"], stored["metadata"], stored["private"]) == ([], {}, False)


@pytest.mark.parametrize(
    ("vectors", "status"),
    [
        ([one_hot(1), one_hot(2)], "search_ready"),
        ([one_hot(1), None], "text_ready"),
        ([None, None], "text_ready"),
        ([], "pending"),
    ],
)
def test_the_index_status_says_what_is_searchable(server: Server, org: Org, vectors: Any, status: str) -> None:
    chunks = chunks_of([f"part {number} " for number in range(len(vectors))], vectors)
    [result] = write(server, org.owner, memory("part 0 part 1", chunks=chunks))

    assert result == {"id": result["id"], "version": 1, "index_status": status, "deduplicated": False}
    expected = {"pending": int(status != "search_ready"), "indexing": 0, "failed": 0}
    assert server.call("index_status", org.owner) == expected


def test_the_author_and_the_strength_are_noted(server: Server, org: Org) -> None:
    agent = org.agent("scribe")
    item = write_one(server, agent, "learned", type="architecture")
    row = "select author_user_id, author_agent_id::text from almagest.items where id = %s"

    assert server.rows(row, item) == [(None, agent["agent"])]
    assert server.value("select starting_strength from almagest.strength_signals where item_id = %s", item) == (
        pytest.approx(0.7)
    )
    assert server.rows("select action, version, actor_agent_id::text from almagest.audit_log") == [
        ("created", 1, agent["agent"])
    ]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"type": "rumour"}, "unknown_type"),
        ({"project": "nowhere"}, "unknown_project"),
        ({"client": "nobody"}, "unknown_client"),
        ({"deal": "nothing"}, "unknown_deal"),
        ({"client": "south"}, "unknown_client"),  # it exists, but not for this caller
        ({"deal": "south-one"}, "unknown_deal"),
        ({"client": "north", "deal": "west-one"}, "deal_of_another_client"),
        ({"type": "manifesto", "private": True}, "cannot_be_private"),
    ],
)
def test_a_wrong_memory_is_refused(server: Server, org: Org, fields: dict[str, Any], code: str) -> None:
    for slug in ("north", "south", "west"):
        org.client(slug)
        org.deal(f"{slug}-one", slug)
    server.rows(
        "insert into almagest.item_types (org_id, name, may_be_private) values (%s, 'manifesto', false)", org.id
    )
    member = org.member(clients=["north", "west"])
    before = counts(server)

    with pytest.raises(Refused) as refused:
        write_one(server, member, "wrong", **fields)
    assert (refused.value.status, refused.value.code) == (422, code)
    assert counts(server) == before


def test_a_key_without_a_person_has_no_private_memories(server: Server, org: Org) -> None:
    with pytest.raises(Refused, match="422 cannot_be_private"):
        write_one(server, org.agent("scribe"), "mine", private=True)


def test_an_orgs_own_type_wins(server: Server, org: Org) -> None:
    server.rows(
        "insert into almagest.item_types (org_id, name, starting_strength)"
        " values (%s, 'note', 0.9), (%s, 'ritual', 0.2)",
        *(org.id, org.id),
    )
    other = Org(server, "other")
    strengths = []
    for caller, fields in ((org.owner, {}), (org.owner, {"type": "ritual"}), (other.owner, {})):
        item = write_one(server, caller, f"text {fields}", **fields)
        strengths.append(
            server.value("select starting_strength::text from almagest.strength_signals where item_id = %s", item)
        )
    assert strengths == ["0.9", "0.2", "0.5"]
    with pytest.raises(Refused, match="422 unknown_type"):
        write_one(server, other.owner, "text", type="ritual")


# The same again


def test_a_memory_restated_is_one_row_with_more_tags(server: Server, org: Org) -> None:
    """W2."""
    member = org.member()
    first = write_one(server, org.owner, "Deploy on Fridays", one_hot(1), tags=["deploy"], title="Kept")
    before = counts(server)
    [again] = write(server, member, memory("Deploy on Fridays", one_hot(1), tags=["deploy", "friday"], title="Ignored"))

    assert again == {"id": first, "version": 1, "index_status": "search_ready", "deduplicated": True}
    stored = server.call("get_item", member, {"id": first})
    assert (stored["tags"], stored["title"]) == (["deploy", "friday"], "Kept")
    # What it was tagged with is found, and nothing else has grown.
    assert ids(search(server, member, "friday")) == [first]
    grown = {table: number - before[table] for table, number in counts(server).items() if number != before[table]}
    assert grown == {"item_tags": 1, "audit_log": 1, "idempotency_keys": 1}


def test_restating_without_news_changes_nothing(server: Server, org: Org) -> None:
    write_one(server, org.owner, "Deploy on Fridays", tags=["deploy"])
    before = server.rows("select i::text from almagest.items as i")
    write_one(server, org.owner, "Deploy on Fridays", tags=["deploy"])

    assert server.rows("select i::text from almagest.items as i") == before
    assert server.rows("select action from almagest.audit_log") == ["created"]


def test_an_archived_memory_restated_comes_back(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "Deploy on Fridays", one_hot(1))
    act(server, "archive_item", org.owner, item)
    [again] = write(server, org.member(), memory("Deploy on Fridays", one_hot(1)))

    assert again["id"] == item
    assert again["deduplicated"]
    assert ids(search(server, org.owner, "Fridays", one_hot(1))) == [item]
    assert server.rows("select action from almagest.audit_log order by id") == ["created", "archived", "restored"]


def test_to_restate_what_was_canon_is_not_to_make_it_canon(server: Server, org: Org) -> None:
    """P9: an owner took it out of the prefix; others may say it again, but not put it back there."""
    item = write_one(server, org.owner, "Always deploy on Fridays")
    act(server, "pin_item", org.owner, item)
    act(server, "archive_item", org.owner, item)
    write_one(server, org.member(), "Always deploy on Fridays")

    assert server.call("get_item", org.owner, {"id": item})["state"] == "active"
    assert server.call("bootstrap", org.owner, {})["canon"] == []


def test_an_erased_memory_written_again_is_new(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "Deploy on Fridays")
    act(server, "erase_item", org.owner, item)

    assert write_one(server, org.owner, "Deploy on Fridays") != item


def test_a_memory_twice_in_one_batch_is_one_row(server: Server, org: Org) -> None:
    results = write(server, org.owner, memory("same", tags=["a"]), memory("other"), memory("same", tags=["b"]))

    assert [result["deduplicated"] for result in results] == [False, False, True]
    assert results[0]["id"] == results[2]["id"] != results[1]["id"]
    assert server.call("get_item", org.owner, {"id": results[0]["id"]})["tags"] == ["a", "b"]


# Batches


def test_a_batch_reports_what_is_wrong_in_its_place(server: Server, org: Org) -> None:
    results = write(
        server,
        org.owner,
        memory("zebra", one_hot(1)),
        memory("rumour", type="rumour"),
        memory("apple", one_hot(2)),
        memory("short vector", [1.0]),
        memory("mango", client="nobody"),
    )

    assert [result.get("problem", {}).get("code") for result in results] == [
        None,
        "unknown_type",
        None,
        "invalid_vector",
        "unknown_client",
    ]
    assert results[1]["problem"] == {
        "status": 422,
        "code": "unknown_type",
        "detail": "There is no item type of this name.",
    }
    contents = [server.call("get_item", org.owner, {"id": results[place]["id"]})["content"] for place in (0, 2)]
    assert contents == ["zebra", "apple"]
    assert counts(server)["items"] == 2


def test_an_atomic_batch_is_whole_or_nothing(server: Server, org: Org) -> None:
    before = counts(server)
    with pytest.raises(Refused, match="422 unknown_type"):
        write(server, org.owner, memory("right"), memory("rumour", type="rumour"), atomic=True)
    assert counts(server) == before

    results = write(server, org.owner, memory("right"), memory("also right"), atomic=True)
    assert len(results) == 2


def test_five_hundred_memories_in_one_batch(server: Server, org: Org) -> None:
    memories = [memory(f"note number {number}", one_hot(number % 384), tags=["many"]) for number in range(500)]
    results = write(server, org.owner, *memories)

    assert len({result["id"] for result in results}) == 500
    for number in random.Random(1).sample(range(500), 20):  # noqa: S311
        assert ids(search(server, org.owner, f"note number {number}"))[0] == results[number]["id"]


def test_an_empty_batch_is_empty(server: Server, org: Org) -> None:
    assert write(server, org.owner) == []


# W1: idempotency


def test_the_same_key_and_request_give_the_same_answer(server: Server, org: Org) -> None:
    request = {"memories": [memory("once"), memory("twice")], "model": MODEL, "idempotency": unique_key()}
    first = server.call("write_memories", org.owner, request)
    before = counts(server)
    second = server.call("write_memories", org.owner, request)

    assert first["replayed"] is False
    assert second == {**first, "replayed": True}
    assert counts(server) == before


def test_the_same_key_for_another_request_is_a_conflict(server: Server, org: Org) -> None:
    key = unique_key()
    server.call("write_memories", org.owner, {"memories": [memory("once")], "model": MODEL, "idempotency": key})
    before = counts(server)
    other = {**key, "request_hash": digest("other")}
    item = server.value("select id::text from almagest.items")

    for name, request in (
        ("write_memories", {"memories": [memory("twice")], "model": MODEL}),
        ("archive_item", {"id": item}),
        ("erase_item", {"id": item}),
    ):
        with pytest.raises(Refused, match="409 idempotency_conflict"):
            server.call(name, org.owner, {**request, "idempotency": other})
    assert counts(server) == before


def test_keys_belong_to_whoever_used_them(server: Server, org: Org) -> None:
    """Another person's key says nothing, and meets nothing."""
    member, agent, other = org.member(), org.agent("scribe"), Org(server, "other")
    key = unique_key()
    answers = [
        server.call("write_memories", caller, {"memories": [memory("the same")], "model": MODEL, "idempotency": key})
        for caller in (org.owner, member, agent, other.owner)
    ]
    assert [answer["replayed"] for answer in answers] == [False] * 4


def test_a_failed_request_does_not_use_up_its_key(server: Server, org: Org) -> None:
    key = unique_key()
    wrong = {"memories": [memory("x", type="rumour")], "atomic": True, "model": MODEL, "idempotency": key}
    with pytest.raises(Refused, match="422 unknown_type"):
        server.call("write_memories", org.owner, wrong)
    server.rows("insert into almagest.item_types (org_id, name) values (%s, 'rumour')", org.id)

    assert server.call("write_memories", org.owner, wrong)["replayed"] is False


def test_every_write_can_be_repeated(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "to work on")
    chunks = chunks_of(["new text"], [None])
    edit = {"version": 1, "changes": {"content": "new text"}, "content_hash": digest("new text"), "chunks": chunks}
    steps: list[tuple[str, dict[str, Any]]] = [
        ("update_item", edit),
        ("archive_item", {}),
        ("restore_item", {}),
        ("pin_item", {}),
        ("unpin_item", {}),
        ("erase_item", {}),
    ]
    for name, fields in steps:
        request = {"id": item, "idempotency": unique_key(), **fields}
        first = server.call(name, org.owner, request)
        before = counts(server)
        assert server.call(name, org.owner, request) == first, name
        assert counts(server) == before, name


def test_without_a_key_a_write_is_made_each_time(server: Server, org: Org) -> None:
    request = {"memories": [memory("no key")], "model": MODEL}
    first = server.call("write_memories", org.owner, request)["results"][0]
    second = server.call("write_memories", org.owner, request)["results"][0]
    assert second == {**first, "deduplicated": True}


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeat_that_comes_too_early_waits_for_the_answer(server: Server, org: Org, commit: bool) -> None:
    """And does the work itself when the first one came to nothing."""
    request = {"memories": [memory("once")], "model": MODEL, "idempotency": unique_key()}

    def repeat(other: Server) -> Any:
        return other.call("write_memories", org.owner, request)

    first, second = overlap(server, repeat, repeat, commit=commit)

    assert second["replayed"] is commit
    assert (second["results"] == first["results"]) is commit
    assert counts(server)["items"] == 1


# Edits


def test_an_edit_makes_a_version_and_keeps_the_old_one(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "The sky is green", one_hot(1), title="Sky", tags=["colour"], metadata={"a": 1})
    created = server.value("select updated_at from almagest.items")
    answer = change(server, org.owner, item, 1, content="The sky is blue", importance=0.8)

    assert answer == {"id": item, "version": 2, "index_status": "search_ready"}
    stored = server.call("get_item", org.owner, {"id": item})
    assert (stored["content"], stored["title"], stored["importance"], stored["version"]) == (
        "The sky is blue",
        "Sky",
        0.8,
        2,
    )
    [old] = server.rows(
        "select version, content, title, tags, metadata, priority, content_hash, valid_from, valid_to"
        " from almagest.item_versions"
    )
    since = server.value("select updated_at from almagest.items")
    assert old == (1, "The sky is green", "Sky", ["colour"], {"a": 1}, 0.5, digest("The sky is green"), created, since)
    assert server.rows("select action, version, detail from almagest.audit_log order by id")[-1] == (
        "edited",
        2,
        {"fields": ["content", "importance"]},
    )


def test_history_has_no_gap_and_no_overlap(server: Server, org: Org) -> None:
    """W5: at each moment one version is the current one."""
    item = write_one(server, org.owner, "one")
    for version in range(1, 5):
        change(server, org.owner, item, version, content=f"text {version}")
    spans = server.rows("select valid_from, valid_to from almagest.item_versions order by version")
    current = server.value("select updated_at from almagest.items")

    assert [end for _, end in spans] == [*(start for start, _ in spans[1:]), current]
    assert all(start < end for start, end in spans)


def test_an_edit_of_an_old_version_is_a_conflict(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "one")
    change(server, org.owner, item, 1, content="two")
    before = counts(server)

    for version in (1, 3, None):
        with pytest.raises(Refused, match="409 version_conflict") as refused:
            change(server, org.owner, item, version, content="three")  # type: ignore[arg-type]
        assert refused.value.members == {"version": 2}
    assert counts(server) == before
    assert server.call("get_item", org.owner, {"id": item})["content"] == "two"


def test_of_two_edits_at_once_one_wins(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "one")
    first, second = overlap(
        server,
        lambda s: change(s, org.owner, item, 1, content="from the first"),
        lambda s: change(s, org.owner, item, 1, content="from the second"),
    )
    assert first["version"] == 2
    assert isinstance(second, Refused)
    assert (second.code, second.members) == ("version_conflict", {"version": 2})


def test_new_text_replaces_the_old_in_both_legs(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "about zebras", one_hot(1))
    change(server, org.owner, item, 1, content="about lions")

    assert ids(search(server, org.owner, "lions")) == [item]
    assert ids(search(server, org.owner, None, one_hot(9))) == [item]
    assert ids(search(server, org.owner, "zebras")) == ids(search(server, org.owner, None, one_hot(1))) == []


def test_a_new_title_is_found_at_once_and_embedded_later(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "some text", one_hot(1), title="Zebra")
    answer = change(server, org.owner, item, 1, title="Lion")

    assert answer["index_status"] == "text_ready"
    assert ids(search(server, org.owner, "lion")) == [item]
    assert ids(search(server, org.owner, "zebra")) == []
    assert change(server, org.owner, item, 2, title=None)["version"] == 3
    assert server.call("get_item", org.owner, {"id": item})["title"] is None


def test_new_tags_replace_those_that_people_set(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "some text", one_hot(1), tags=["zebra", "lion"])
    server.rows(
        "insert into almagest.item_tags (item_id, org_id, tag, source) values (%s, %s, 'savanna', 'auto')", item, org.id
    )
    answer = change(server, org.owner, item, 1, tags=["lion", "tiger"])

    assert answer["index_status"] == "search_ready"
    assert server.call("get_item", org.owner, {"id": item})["tags"] == ["lion", "savanna", "tiger"]
    assert ids(search(server, org.owner, "tiger")) == [item]
    assert ids(search(server, org.owner, "zebra")) == []
    change(server, org.owner, item, 2, tags=[])
    assert server.call("get_item", org.owner, {"id": item})["tags"] == ["savanna"]


def test_other_fields_change_without_a_new_index(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "some text", one_hot(1))
    before = server.rows("select id from almagest.chunks")
    fields = {
        "type": "decision",
        "metadata": {"b": 2},
        "source_ref": "mail-1",
        "agent_name": "scribe",
        "occurred_at": "2026-01-01T00:00:00Z",
        "importance": 0.0,
    }
    answer = change(server, org.owner, item, 1, **fields)
    stored = server.call("get_item", org.owner, {"id": item})

    assert answer["index_status"] == "search_ready"
    assert {name: stored[name] for name in fields} == {**fields, "occurred_at": "2026-01-01T00:00:00.000000Z"}
    assert server.rows("select id from almagest.chunks") == before
    change(server, org.owner, item, 2, source_ref=None, agent_name=None, occurred_at=None)
    cleared = server.call("get_item", org.owner, {"id": item})
    assert (cleared["source_ref"], cleared["agent_name"], cleared["occurred_at"]) == (None, None, None)


def test_an_edit_that_repeats_another_item_is_a_conflict(server: Server, org: Org) -> None:
    write_one(server, org.owner, "taken")
    item = write_one(server, org.owner, "free")
    before = counts(server)

    with pytest.raises(Refused, match="409 duplicate"):
        change(server, org.owner, item, 1, content="taken")
    assert counts(server) == before
    assert ids(search(server, org.owner, "free")) == [item]


def test_an_edit_keeps_to_the_rules_of_writing(server: Server, org: Org) -> None:
    server.rows(
        "insert into almagest.item_types (org_id, name, may_be_private) values (%s, 'manifesto', false)", org.id
    )
    item = write_one(server, org.owner, "mine", private=True)

    with pytest.raises(Refused, match="422 unknown_type"):
        change(server, org.owner, item, 1, type="rumour")
    with pytest.raises(Refused, match="422 cannot_be_private"):
        change(server, org.owner, item, 1, type="manifesto")


def test_members_edit_what_is_shared(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "shared")
    assert change(server, org.member(), item, 1, content="shared and edited")["version"] == 2
    assert change(server, org.agent("scribe"), item, 2, content="edited again")["version"] == 3


CANON_CHANGES: list[Callable[[Server, Caller, str], Any]] = [
    lambda server, caller, item: change(server, caller, item, 1, content="Give me the keys"),
    lambda server, caller, item: act(server, "archive_item", caller, item),
    lambda server, caller, item: act(server, "restore_item", caller, item),
    lambda server, caller, item: act(server, "erase_item", caller, item),
    lambda server, caller, item: act(server, "pin_item", caller, item),
    lambda server, caller, item: act(server, "unpin_item", caller, item),
]


@pytest.mark.parametrize("number", range(len(CANON_CHANGES)))
def test_canon_is_changed_by_those_who_manage(server: Server, org: Org, number: int) -> None:
    """P9: what is in every run's prefix is not for every member to rewrite, not even its author."""
    member, agent = org.member(), org.agent("scribe")
    pinned = write_one(server, member, "Be kind")
    act(server, "pin_item", org.owner, pinned)
    workspace = org.item("Be brief", scope="workspace")
    before = server.rows("select i::text from almagest.items as i order by id")

    for item in (pinned, workspace):
        for caller in (member, agent, {**org.owner, "agent": agent["agent"]}):
            with pytest.raises(Refused, match="403 forbidden"):
                CANON_CHANGES[number](server, caller, item)
    assert server.rows("select i::text from almagest.items as i order by id") == before
    for item in (pinned, workspace):
        CANON_CHANGES[number](server, org.member("admin"), item)


# Pins


def test_pins_are_canon_in_their_order(server: Server, org: Org) -> None:
    member = org.member()
    items = [
        write_one(server, member, f"rule {number}", title=f"Rule {number}", private=number == 2) for number in range(4)
    ]
    act(server, "pin_item", org.owner, items[0], position=2)
    act(server, "pin_item", org.owner, items[1], position=1)
    act(server, "pin_item", member, items[2], private=True, position=1)
    workspace = org.item("workspace", scope="workspace")

    def canon(caller: Caller) -> list[tuple[str, bool]]:
        return [(entry["id"], entry["pinned"]) for entry in server.call("bootstrap", caller, {})["canon"]]

    assert canon(member) == [(items[2], True), (items[1], True), (items[0], True), (workspace, False)]
    assert canon(org.owner) == [(items[1], True), (items[0], True), (workspace, False)]
    # A pin again moves it, and a pin that is gone may be taken away once more.
    act(server, "pin_item", org.owner, items[0], position=0)
    assert [entry for entry, _ in canon(member)] == [items[0], items[2], items[1], workspace]
    act(server, "unpin_item", org.owner, items[0])
    act(server, "unpin_item", org.owner, items[0])
    assert [entry for entry, _ in canon(member)] == [items[2], items[1], workspace]
    assert [entry for entry, _ in canon(org.owner)] == [items[1], workspace]


def test_what_is_archived_is_no_canon_until_it_is_restored(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "rule")
    act(server, "pin_item", org.owner, item)
    act(server, "archive_item", org.owner, item)
    assert server.call("bootstrap", org.owner, {})["canon"] == []
    with pytest.raises(Refused, match="422 not_active"):
        act(server, "pin_item", org.owner, item)
    act(server, "restore_item", org.owner, item)
    assert [entry["content"] for entry in server.call("bootstrap", org.owner, {})["canon"]] == ["rule"]


def test_pins_for_all_are_for_those_who_manage(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "rule")
    member, agent = org.member(), org.agent("scribe")
    for caller in (member, agent):
        for name in ("pin_item", "unpin_item"):
            with pytest.raises(Refused, match="403 forbidden"):
                act(server, name, caller, item)
    with pytest.raises(Refused, match="422 cannot_be_private"):
        act(server, "pin_item", agent, item, private=True)
    act(server, "unpin_item", agent, item, private=True)


def test_nobody_pins_privately_what_somebody_else_could_rewrite(server: Server, org: Org) -> None:
    """P9: what is in a person's prefix is theirs alone to say."""
    member = org.member()
    agent = {**org.agent("scribe"), "user": member["user"]}
    shared = write_one(server, org.owner, "everybody's rule")
    for caller in (member, org.owner, agent):
        with pytest.raises(Refused, match="403 forbidden"):
            act(server, "pin_item", caller, shared, private=True)

    own = write_one(server, member, "my rule", private=True)
    with pytest.raises(Refused, match="403 forbidden"):
        act(server, "pin_item", agent, own, private=True)
    change(server, agent, own, 1, content="my rule, as my agent wrote it")
    assert act(server, "pin_item", member, own, private=True) == {"id": own, "pinned": True}
    for attempt in (
        lambda: change(server, agent, own, 2, content="evil policy"),
        lambda: act(server, "archive_item", agent, own),
    ):
        with pytest.raises(Refused, match="403 forbidden"):
            attempt()
    assert server.call("bootstrap", member, {})["canon"][0]["content"] == "my rule, as my agent wrote it"
    assert act(server, "unpin_item", member, own, private=True) == {"id": own, "pinned": False}


# Archive and restore


def _search_answers(server: Server, caller: Caller) -> list[Any]:
    answers = []
    for query, vector in (("zebra stripes", None), (None, one_hot(1)), ("zebra", one_hot(1, 2))):
        answer = search(server, caller, query, vector)
        answer.pop("trace_id")
        answers.append(answer)
    return answers


def test_an_archived_item_comes_back_as_if_it_had_never_left(server: Server, org: Org) -> None:
    items = [write_one(server, org.owner, f"zebra stripes {number}", one_hot(1, number + 2)) for number in range(3)]
    member = org.member()
    act(server, "pin_item", org.owner, items[0])
    act(server, "unpin_item", org.owner, items[0])
    before = _search_answers(server, member)
    stored = server.call("get_item", member, {"id": items[0]})

    assert act(server, "archive_item", member, items[0]) == {"id": items[0], "state": "archived", "version": 1}
    assert all(items[0] not in ids(answer) for answer in _search_answers(server, member))
    found = search(server, member, "zebra stripes", one_hot(1), include_archived=True)
    assert set(ids(found)) == set(items)
    archived = server.call("get_item", member, {"id": items[0]})
    assert (archived["state"], archived["tier"]) == ("archived", "archive")
    assert archived["archived_at"] is not None

    assert act(server, "restore_item", member, items[0]) == {"id": items[0], "state": "active", "version": 1}
    assert _search_answers(server, member) == before
    assert server.call("get_item", member, {"id": items[0]}) == stored


@pytest.mark.parametrize("tier", ["hot", "warm"])
def test_a_restored_item_has_the_tier_that_it_left(server: Server, org: Org, tier: str) -> None:
    item = org.item("text", tier=tier)
    for _ in range(2):
        act(server, "archive_item", org.owner, item)
        act(server, "restore_item", org.owner, item)
        assert server.call("get_item", org.owner, {"id": item})["tier"] == tier


def test_archiving_twice_changes_nothing_more(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "text")
    act(server, "archive_item", org.owner, item)
    before = server.rows("select i::text from almagest.items as i")
    act(server, "archive_item", org.owner, item)
    assert server.rows("select i::text from almagest.items as i") == before
    act(server, "restore_item", org.owner, item)
    act(server, "restore_item", org.owner, item)
    assert server.rows("select action from almagest.audit_log order by id") == ["created", "archived", "restored"]


def test_what_is_revoked_or_provisional_is_not_archived(server: Server, org: Org) -> None:
    for state in ("revoked", "provisional"):
        item = org.item(f"text {state}", state=state)
        for name in ("archive_item", "restore_item"):
            with pytest.raises(Refused, match="409 wrong_state"):
                act(server, name, org.owner, item)


def test_an_edit_of_an_archived_item_leaves_it_archived(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "zebra", one_hot(1))
    act(server, "archive_item", org.owner, item)
    change(server, org.owner, item, 1, content="zebra and lion")
    assert ids(search(server, org.owner, "zebra", one_hot(9))) == []
    assert ids(search(server, org.owner, "zebra", one_hot(9), include_archived=True)) == [item]


# Erasure


def residue(server: Server, *needles: str) -> list[str]:
    """Tables that hold any of these strings anywhere, whatever the column's type and the case."""
    tables = server.rows(
        "select relname from pg_class where relnamespace = 'almagest'::regnamespace and relkind = 'r' order by 1"
    )
    pattern = "|".join(needle.lower() for needle in needles)
    return [
        table
        for table in tables
        if server.value(f"select exists (select from almagest.{table} as row where lower(row::text) ~ %s)", pattern)
    ]


def _say_much(server: Server, org: Org, caller: Caller) -> str:
    """An item whose words are everywhere that words go: versions, tags, pins, facts, traces, files, leases."""
    old, new = "zqfirst sentence zqold", "zqsecond sentence zqnew"
    item = write_one(
        server,
        caller,
        old,
        one_hot(7),
        title="zqtitle",
        tags=["zqtag"],
        source_ref="zqref",
        agent_name="zqagent",
        conversation={"id": "zqchat", "position": 1},
        metadata={"zqkey": ["zqvalue"]},
        occurred_at="2026-01-01T00:00:00Z",
    )
    change(server, caller, item, 1, content=new, tags=["zqtag", "zqlater"])
    change(server, caller, item, 2, metadata={"zqkey": "zqother"})
    write_one(server, caller, new, source_ref="zqref", conversation={"id": "zqchat", "position": 1}, tags=["zqadded"])
    act(server, "pin_item", caller, item)
    server.rows(
        "insert into almagest.facts (item_id, org_id, subject, relation, status)"
        " values (%s, %s, 'zqsubject', 'zqrelation', 'active')",
        *(item, org.id),
    )
    server.rows(
        "update almagest.items set slug = 'zqslug', summary = 'zqsummary', plain_text = 'zqplain', run_id = 'zqrun',"
        " origin_metadata = '{\"a\": \"zqorigin\"}', external_id = 'zqexternal', file_url = 'zqurl',"
        " file_name = 'zqfile', mime_type = 'zqmime', index_error = 'zqerror', lease_owner = 'zqworker' where id = %s",
        item,
    )
    assert item in ids(search(server, caller, "zqnew", one_hot(9), filters={"tags": ["zqtag"]}))
    server.call("bootstrap", caller, {"query": "zqsecond"})
    server.call("get_item", caller, {"id": item})
    return item


def test_erasure_leaves_no_residue(server: Server, org: Org) -> None:
    """W7: in no table, column or type, with all counted."""
    kept = write_one(server, org.owner, "something else", one_hot(8), tags=["kept"])
    search(server, org.owner, "something else", one_hot(8))
    item = _say_much(server, org, org.owner)
    other = counts(server)
    assert residue(server, "zq") == [
        "audit_log",
        "chunks",
        "facts",
        "item_tags",
        "item_versions",
        "items",
        "lexical",
        "retrievals_rest",
    ]

    asked = "select count(*) from almagest.retrievals where query_vector is not null"
    assert server.value(asked) == 2

    answer = act(server, "erase_item", org.owner, item)

    assert answer == {
        "id": item,
        "state": "erased",
        "erased": {
            "chunks": 2,
            "embeddings": 2,
            "versions": 3,
            "tags": 3,
            "pins": 1,
            "facts": 1,
            "traces": 2,
        },
    }
    # The name is all that is left, and only in the audit log.
    assert residue(server, "zq") == ["audit_log"]
    assert server.rows("select distinct name from almagest.audit_log where name like 'zq%%' and %s", True) == [
        "zqtitle"
    ]
    assert residue(server, digest("zqfirst sentence zqold"), digest("zqsecond sentence zqnew")) == []
    assert server.value(asked) == 1
    assert server.value("select count(*) from almagest.items where id = %s", item) == 1
    for table in ("chunks", "lexical", "embeddings", "item_versions", "item_tags", "pins", "facts", "item_agents"):
        assert server.value(f"select count(*) from almagest.{table} where item_id = %s", item) == 0, table
    # What is not its own is untouched.
    assert ids(search(server, org.owner, "something", one_hot(8))) == [kept]
    assert counts(server)["chunks"] == other["chunks"] - 2
    assert server.rows("select query from almagest.retrievals where query is not null") == [
        "something else",
        "something",
    ]


def test_the_skeleton_of_an_erased_item_stays(server: Server, org: Org) -> None:
    item = _say_much(server, org, org.owner)
    act(server, "erase_item", org.owner, item)

    assert server.rows("select action, version from almagest.audit_log where item_id = %s order by id", item) == [
        ("created", 1),
        ("edited", 2),
        ("edited", 3),
        ("tagged", 3),
        ("pinned", 3),
        ("erased", 3),
    ]
    assert server.rows("select state, version, user_id from almagest.items where id = %s", item) == [
        ("erased", 3, None)
    ]
    assert server.value("select count(*) from almagest.strength_signals where item_id = %s", item) == 1
    assert server.value("select count(*) from almagest.activations where item_id = %s", item) == 3
    for name in ("get_item", "get_chunks"):
        with pytest.raises(Refused, match="404 not_found"):
            server.call(name, org.owner, {"id": item})
    for name in ("archive_item", "restore_item", "erase_item", "pin_item", "unpin_item"):
        with pytest.raises(Refused, match="404 not_found"):
            act(server, name, org.owner, item)


def test_strict_erasure_drops_the_name_too(server: Server, org: Org) -> None:
    item = _say_much(server, org, org.owner)
    act(server, "erase_item", org.owner, item, strict=True)

    assert residue(server, "zq") == []
    assert server.value("select count(*) from almagest.audit_log where item_id = %s", item) == 6


def test_an_archived_item_is_erased_as_well(server: Server, org: Org) -> None:
    item = _say_much(server, org, org.owner)
    act(server, "archive_item", org.owner, item)
    act(server, "erase_item", org.owner, item, strict=True)
    assert residue(server, "zq") == []
    assert ids(search(server, org.owner, "zqnew", include_archived=True)) == []


def test_who_may_erase(server: Server, org: Org) -> None:
    author, member, agent = org.member(), org.member(), org.agent("scribe")
    agents_person = {**author, "agent": agent["agent"], "role": "agent"}

    def shared(caller: Caller) -> str:
        return write_one(server, caller, f"text {uuid4()}")

    for who, item in (
        (member, shared(author)),
        (agent, shared(author)),
        (member, shared(agent)),
        (org.member("project_manager"), shared(author)),
        (author, org.item(f"nobody wrote {uuid4()}")),
    ):
        with pytest.raises(Refused, match="403 forbidden"):
            act(server, "erase_item", who, item)
        assert server.value("select state from almagest.items where id = %s", item) == "active"
    for who, item in (
        (author, shared(author)),
        (agent, shared(agent)),
        (agents_person, shared(agents_person)),
        (author, shared(agents_person)),
        (org.owner, shared(author)),
        (org.member("admin"), org.item(f"nobody wrote {uuid4()}")),
        (author, write_one(server, author, "mine", private=True)),
    ):
        assert act(server, "erase_item", who, item)["state"] == "erased"


def test_two_erasures_of_what_one_trace_showed_do_not_deadlock(server: Server, org: Org) -> None:
    items = [write_one(server, org.owner, f"zebra {number}", one_hot(number)) for number in range(6)]
    for number in range(10):
        search(server, org.owner, "zebra", one_hot(number))
    works = [lambda s, item=item: act(s, "erase_item", org.owner, item) for item in items]

    assert [answer["state"] for answer in at_once(server, *works)] == ["erased"] * 6
    assert residue(server, "zebra") == []


# S13: vectors that are none


BAD_VECTORS = {
    "3 dimensions": "[1,2,3]",
    "383 dimensions": "[" + ",".join(["1"] * 383) + "]",
    "385 dimensions": "[" + ",".join(["1"] * 385) + "]",
    "20,000 dimensions": "[" + ",".join(["1"] * 20_000) + "]",
    "not a number": "[" + ",".join(["NaN", *["1"] * 383]) + "]",
    "infinity": "[" + ",".join(["Infinity", *["1"] * 383]) + "]",
    "minus infinity": "[" + ",".join(["-inf", *["1"] * 383]) + "]",
    "too large": "[" + ",".join(["1e9", *["1"] * 383]) + "]",
    "all zeros": "[" + ",".join(["0"] * 384) + "]",
    "all but zeros": "[" + ",".join(["1e-30"] * 384) + "]",
    "empty": "[]",
    "nothing": "",
    "words": "nonsense",
    "half": "[1,2",
    "an object": "{}",
}


@pytest.mark.parametrize("name", BAD_VECTORS)
def test_a_bad_vector_is_refused_and_never_stored(server: Server, org: Org, name: str) -> None:
    bad = memory("with a bad vector")
    bad["chunks"][0]["embedding"] = BAD_VECTORS[name]
    item = write_one(server, org.owner, "good", one_hot(1))
    before = counts(server)

    with pytest.raises(Refused, match="422 invalid_vector"):
        write(server, org.owner, bad, atomic=True)
    with pytest.raises(Refused, match="422 invalid_vector"):
        search(server, org.owner, "good", None, embedding=BAD_VECTORS[name], model=MODEL)
    edit = {"id": item, "version": 1, "changes": {"content": "bad"}, "content_hash": digest("bad")}
    with pytest.raises(Refused, match="422 invalid_vector"):
        server.call("update_item", org.owner, {**edit, "chunks": bad["chunks"], "model": MODEL})
    assert counts(server) == before

    [refused, written] = write(server, org.owner, bad, memory("beside it", one_hot(2)))
    assert (refused["problem"]["status"], refused["problem"]["code"]) == (422, "invalid_vector")
    assert written["index_status"] == "search_ready"
    assert counts(server)["embeddings"] == 2


def test_a_first_write_that_fails_leaves_the_first_model_its_index(server: Server, org: Org) -> None:
    """S7: the index is for model 1, so number 1 must not be lost to a write that came to nothing."""
    for _ in range(3):
        with pytest.raises(Refused, match="422 unknown_type"):
            write(server, org.owner, memory("x", one_hot(1), type="rumour"), atomic=True)
    write_one(server, org.owner, "good", one_hot(1))
    write(server, org.owner, memory("of another model", one_hot(1)), model="another")

    assert server.rows("select id, name from almagest.embedding_models order by id") == [(1, MODEL), (2, "another")]


@pytest.mark.parametrize("commit", [True, False])
def test_two_who_bring_the_first_model_agree_on_its_number(server: Server, org: Org, commit: bool) -> None:
    overlap(
        server,
        lambda s: write_one(s, org.owner, "first", one_hot(1)),
        lambda s: write_one(s, org.owner, "second", one_hot(2)),
        commit=commit,
    )
    assert server.rows("select id, name from almagest.embedding_models") == [(1, MODEL)]


# W8: what texts may hold


@pytest.mark.parametrize(
    "text",
    [
        "🙂 emoji 👩‍👩‍👧‍👦 and \U0001f1e9\U0001f1ea",
        "quotes ' \" ` and \\ backslash \\n",
        "tabs\tand\nlines\n\n",
        "right to left: שלום مرحبا",
        "{}[]<>&%$#@!",
        "null \\u0000 spelled out",
        "a" * 3000,
        "\u200b\u200d\ufeff invisible",
        "\U0010ffff\ue000 private",
        "ﷺ" * 100,
    ],
)
def test_any_clean_text_is_stored_and_read_back(server: Server, org: Org, text: str) -> None:
    item = write_one(server, org.owner, text, title=text[:500], tags=[text[:100]], source_ref=text[:200])
    stored = server.call("get_item", org.owner, {"id": item})
    assert (stored["content"], stored["title"], stored["tags"], stored["source_ref"]) == (
        text,
        text[:500],
        [text[:100]],
        text[:200],
    )
    assert [part["text"] for part in server.call("get_chunks", org.owner, {"id": item})["chunks"]] == [text]


@pytest.mark.parametrize("text", ["a\0b", "lone \ud800 surrogate"])
def test_what_is_no_text_is_refused_whole(server: Server, org: Org, text: str) -> None:
    """The edge cleans it; what gets here all the same is a data error, which the edge answers with 422."""
    before = counts(server)
    with pytest.raises(psycopg.DataError):
        write(server, org.owner, {**memory("fine"), "content": text})
    assert counts(server) == before


def _long(server: Server, org: Org, text: str) -> tuple[str, int]:
    pieces = [
        {"position": piece.position, "start": piece.start, "end": piece.end, "text": piece.text, "embedding": None}
        for piece in chunk(text)
    ]
    return write_one(server, org.owner, text, chunks=pieces), len(pieces)


def test_54_kilobytes_of_unique_words_are_searchable_to_the_last(server: Server, org: Org) -> None:
    words = [f"u{number:05d}x" for number in range(6750)]
    item, pieces = _long(server, org, " ".join(words))

    assert pieces > 40
    for word in (words[0], words[3333], words[-1]):
        [result] = search(server, org.owner, word)["results"]
        assert result["id"] == item
        assert word in server.value(
            "select text from almagest.chunks where item_id = %s and position(%s in text) > 0 limit 1", *(item, word)
        )


def test_a_million_characters_are_searchable_to_the_last(server: Server, org: Org) -> None:
    sentence = "The quick brown fox jumps over the lazy dog. "
    text = (sentence * 22_223)[:999_990] + " zqlastone"
    assert len(text) == 1_000_000
    item, pieces = _long(server, org, text)

    assert ids(search(server, org.owner, "zqlastone")) == [item]
    read, cursor = [], None
    while True:
        page = server.call("get_chunks", org.owner, {"id": item, "cursor": cursor, "limit": 100})
        read += page["chunks"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert [part["position"] for part in read] == list(range(pieces))
    assert all(text[part["start"] : part["end"]] == part["text"] for part in read)


# At the same time


@pytest.mark.parametrize("commit", [True, False])
def test_the_same_memory_at_once_is_one_row(server: Server, org: Org, commit: bool) -> None:
    """W1, W2, W9."""
    first, second = overlap(
        server,
        lambda s: write(s, org.owner, memory("once told", one_hot(1), tags=["a"]))[0],
        lambda s: write(s, org.owner, memory("once told", one_hot(1), tags=["b"]))[0],
        commit=commit,
    )
    assert second["deduplicated"] is commit
    assert (second["id"] == first["id"]) is commit
    assert counts(server)["items"] == counts(server)["chunks"] == 1
    assert server.call("get_item", org.owner, {"id": second["id"]})["tags"] == (["a", "b"] if commit else ["b"])


@pytest.mark.parametrize("commit", [True, False])
def test_a_write_that_meets_an_erasure_is_not_lost(server: Server, org: Org, commit: bool) -> None:
    item = write_one(server, org.owner, "once told")
    _, second = overlap(
        server,
        lambda s: act(s, "erase_item", org.owner, item),
        lambda s: write(s, org.owner, memory("once told"))[0],
        commit=commit,
    )
    assert second["deduplicated"] is not commit
    assert (second["id"] == item) is not commit
    assert ids(search(server, org.owner, "told")) == [second["id"]]


def test_a_write_that_meets_an_edit_is_not_lost(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "once told")
    _, second = overlap(
        server,
        lambda s: change(s, org.owner, item, 1, content="different now"),
        lambda s: write(s, org.owner, memory("once told"))[0],
    )
    assert not second["deduplicated"]
    assert ids(search(server, org.owner, "told")) == [second["id"]]


def test_an_erasure_that_meets_a_restatement_takes_it_along(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "zqsame")
    first, second = overlap(
        server,
        lambda s: write(s, org.owner, memory("zqsame", tags=["zqtag"]))[0],
        lambda s: act(s, "erase_item", org.owner, item),
    )
    assert first["deduplicated"]
    assert second["erased"]["tags"] == 1
    assert residue(server, "zq") == []


def test_batches_of_the_same_texts_in_another_order_do_not_deadlock(server: Server, org: Org) -> None:
    """Whether the texts differ, or only where they were said."""
    org.client("north")
    org.deal("north-one", "north")
    texts = [f"text {number}" for number in range(15)]
    places: list[dict[str, Any]] = [
        {},
        {"conversation": {"id": "chat", "position": 1}},
        {"conversation": {"id": "chat", "position": 2}},
        {"source_ref": "mail"},
        {"client": "north"},
        {"deal": "north-one"},
        {"deal": "north-one", "client": "north"},
        {"private": True},
    ]
    memories = [memory(text, one_hot(1), **place) for text in texts for place in places]
    rows = len(texts) * (len(places) - 1)

    def shuffled(seed: int) -> Callable[[Server], list[dict[str, Any]]]:
        mine = random.Random(seed).sample(memories, len(memories))  # noqa: S311
        return lambda server: write(server, org.owner, *mine)

    answers = at_once(server, *(shuffled(seed) for seed in range(4)))

    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    assert counts(server)["items"] == rows
    assert sum(not result["deduplicated"] for answer in answers for result in answer) == rows


def test_many_kinds_of_writes_at_once_leave_a_whole_store(server: Server, org: Org) -> None:
    """Each either succeeds or is refused for a reason, and what is left fits together."""
    org.owner["key"] = None
    items = [write_one(server, org.owner, f"shared text {number}", one_hot(number)) for number in range(4)]

    def worker(seed: int) -> Callable[[Server], list[Any]]:
        rng = random.Random(seed)  # noqa: S311

        def work(server: Server) -> list[Any]:
            refusals = []
            for step in range(25):
                item = rng.choice(items)
                try:
                    match rng.randrange(6):
                        case 0:
                            write_one(server, org.owner, f"shared text {rng.randrange(8)}", tags=[f"t{step}"])
                        case 1:
                            version = server.value("select version from almagest.items where id = %s", item)
                            change(server, org.owner, item, version, content=f"edited {rng.randrange(6)}")
                        case 2:
                            act(server, "archive_item", org.owner, item)
                        case 3:
                            act(server, "restore_item", org.owner, item)
                        case 4:
                            search(server, org.owner, "shared text", one_hot(1))
                        case 5:
                            if rng.random() < 0.1:
                                act(server, "erase_item", org.owner, item)
                except Refused as refused:
                    refusals.append(refused.code)
            return refusals

        return work

    answers = at_once(server, *(worker(seed) for seed in range(4)))

    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    assert {code for answer in answers for code in answer} <= {"version_conflict", "duplicate", "not_found"}
    broken = server.rows(
        "select i.id::text from almagest.items as i where (i.state = 'erased') = exists ("
        "  select from almagest.chunks as k join almagest.lexical as l on l.chunk_id = k.id"
        "  where k.item_id = i.id and k.text = i.content and l.state = i.state)"
        " or (i.state <> 'erased' and (select count(*) from almagest.chunks as k"
        "  where k.item_id = i.id and k.version = i.version) <> 1)"
        " or exists (select from almagest.chunks as k join almagest.lexical as l on l.chunk_id = k.id"
        "  where k.item_id = i.id and k.version <> i.version and l.state <> 'replaced')"
    )
    assert broken == []


def test_a_search_is_never_held_up_by_a_write(server: Server, org: Org) -> None:
    """S17: with writes to everything half done, a search answers at once with what was there before."""
    item = write_one(server, org.owner, "zebra", one_hot(1))
    server.api.execute("begin")
    try:
        change(server, org.owner, item, 1, content="lion")
        act(server, "archive_item", org.owner, write_one(server, org.owner, "zebra two", one_hot(1)))
        with server.another() as other:
            other.api.execute("set lock_timeout = '100ms'")
            assert ids(search(other, org.owner, "zebra", one_hot(1))) == [item]
            assert other.call("get_item", org.owner, {"id": item})["content"] == "zebra"
            other.call("bootstrap", org.owner, {"query": "zebra"})
    finally:
        server.api.execute("rollback")


def test_the_audit_log_never_holds_content(server: Server, org: Org) -> None:
    """P7: whatever is written, only names of fields and the title."""
    item = write_one(server, org.owner, "zqcontent", tags=["zqtag"], metadata={"k": "zqmeta"}, source_ref="zqref")
    change(server, org.owner, item, 1, content="zqmore", metadata={"k": "zqother"})
    act(server, "archive_item", org.owner, item)
    write_one(server, org.owner, "zqmore", source_ref="zqref", tags=["zqnew"])

    assert "audit_log" not in residue(server, "zq")
    assert "idempotency_keys" not in residue(server, "zq")


def test_jsonb_numbers_survive(server: Server, org: Org) -> None:
    metadata = {"big": 12345678901234567890, "small": 1e-7, "nested": {"list": [1, None, True, "x"]}}
    item = write_one(server, org.owner, "numbers", metadata=metadata)
    assert server.call("get_item", org.owner, {"id": item})["metadata"] == metadata
    assert server.value("select metadata = %s from almagest.items", Jsonb(metadata))
