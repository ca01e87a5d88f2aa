"""Searches of the past: the version valid then, of what was there then."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.database.support import (
    MODEL,
    Caller,
    Org,
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

HOUR = timedelta(hours=1)


def clock(server: Server) -> datetime:
    """The database's time."""
    moment: datetime = server.value("select clock_timestamp()")
    return moment


def edit(server: Server, caller: Caller, item: str, version: int, **changes: Any) -> None:
    """Edit an item; new content comes in one chunk."""
    request: dict[str, Any] = {"id": item, "version": version, "changes": changes, "idempotency": unique_key()}
    if "content" in changes:
        request |= {
            "content_hash": digest(changes["content"]),
            "chunks": chunks_of([changes["content"]], [one_hot(version + 1)]),
            "model": MODEL,
        }
    server.call("update_item", caller, request)


def move(server: Server, caller: Caller, name: str, item: str) -> None:
    """Archive, restore or erase an item."""
    server.call(name, caller, {"id": item, "idempotency": unique_key()})


def texts(
    server: Server, caller: Caller, as_of: datetime | None, states: str = "{active}", filters: Any = None
) -> list[str]:
    """Texts of the chunks that a search at a time reads."""
    return server.rows(
        "select k.text from engine.resolve_caller(%s) as c"
        " join almagest.chunks as k on k.id = any(engine.matching_chunks(c, %s, %s, %s)) order by k.text",
        *(Jsonb(caller), states, Jsonb(filters or {}), as_of),
    )


def ask(server: Server, caller: Caller, query: str, as_of: datetime | None, **fields: Any) -> list[dict[str, Any]]:
    """Results of a search at a time."""
    results: list[dict[str, Any]] = search(server, caller, query, as_of=as_of.isoformat() if as_of else None, **fields)[
        "results"
    ]
    return results


def test_each_time_has_the_version_valid_then(server: Server, org: Org) -> None:
    """W5: the old one is shown as it was, and no moment has both or none."""
    before = clock(server)
    item = write_one(server, org.owner, "We release on Mondays.", one_hot(1), title="Rule", tags=["old"])
    first = clock(server)
    edit(server, org.owner, item, 1, content="We release on Tuesdays.", tags=["new"])
    second = clock(server)
    edit(server, org.owner, item, 2, content="We release on Wednesdays.", title="Law")
    third = clock(server)

    assert texts(server, org.owner, before) == []
    assert texts(server, org.owner, first) == ["We release on Mondays."]
    assert texts(server, org.owner, second) == ["We release on Tuesdays."]
    assert texts(server, org.owner, third) == texts(server, org.owner, None) == ["We release on Wednesdays."]
    assert texts(server, org.owner, third + HOUR) == ["We release on Wednesdays."]
    moments = server.rows("select valid_from from almagest.item_versions order by version")
    for moment, text in zip(moments, ("Mondays", "Tuesdays"), strict=True):
        assert texts(server, org.owner, moment) == [f"We release on {text}."]
        assert text not in str(texts(server, org.owner, moment - timedelta(microseconds=1)))


def test_results_of_the_past_say_what_the_version_said(server: Server, org: Org) -> None:
    item = write_one(
        server, org.owner, "We release on Mondays.", one_hot(1), title="Rule", tags=["old"], metadata={"a": 1},
        source_ref="first.md", agent_name="ann",
    )  # fmt: skip
    first = clock(server)
    edit(
        server, org.owner, item, 1,
        content="We deploy on Tuesdays.", title="Law", type="decision", tags=["new"], metadata={"a": 2},
        source_ref="second.md", agent_name="ben",
    )  # fmt: skip
    [then] = ask(server, org.owner, "Mondays release", first)
    [now] = ask(server, org.owner, "Tuesdays deploy", None)

    said = ("id", "version", "title", "type", "tags", "metadata", "source_ref", "agent_name", "snippet")
    assert [then[name] for name in said] == [
        item, 1, "Rule", "note", ["old"], {"a": 1}, "first.md", "ann", "We release on Mondays.",
    ]  # fmt: skip
    assert [now[name] for name in said] == [
        item, 2, "Law", "decision", ["new"], {"a": 2}, "second.md", "ben", "We deploy on Tuesdays.",
    ]  # fmt: skip
    assert ask(server, org.owner, "Tuesdays deploy", first) == []
    assert ask(server, org.owner, "Mondays release", None) == []
    assert ask(server, org.owner, "Mondays release", first - HOUR) == []


def test_what_was_not_said_then_is_not_told_of_then(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "zebra")
    first = clock(server)
    edit(server, org.owner, item, 1, title="Later", source_ref="later.md", agent_name="later")
    second = clock(server)
    edit(server, org.owner, item, 2, title=None, source_ref=None, agent_name=None)
    told = [
        [
            (result["title"], result["source_ref"], result["agent_name"])
            for result in ask(server, org.owner, "zebra", at)
        ]
        for at in (first, second, None)
    ]
    assert told == [[(None, None, None)], [("Later", "later.md", "later")], [(None, None, None)]]


def test_the_past_is_found_by_meaning_too(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "Mondays", one_hot(1))
    first = clock(server)
    edit(server, org.owner, item, 1, content="Tuesdays")
    answer = search(server, org.owner, None, one_hot(1), as_of=first.isoformat())
    assert [result["snippet"] for result in answer["results"]] == ["Mondays"]
    assert search(server, org.owner, None, one_hot(1))["results"] == []


def test_an_edit_of_the_title_or_tags_keeps_what_they_were(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "We release weekly.", one_hot(1), title="Mondayish", tags=["mondaytag"])
    first = clock(server)
    edit(server, org.owner, item, 1, title="Tuesdayish")
    second = clock(server)
    edit(server, org.owner, item, 2, tags=["tuesdaytag"])
    third = clock(server)
    edit(server, org.owner, item, 3, importance=0.9, metadata={"a": 1})

    def found(query: str, as_of: datetime | None) -> list[tuple[int, str]]:
        return [(result["version"], result["title"]) for result in ask(server, org.owner, query, as_of)]

    assert found("mondayish", first) == [(1, "Mondayish")]
    assert found("mondayish", second) == found("mondayish", None) == []
    assert found("mondaytag", second) == [(2, "Tuesdayish")]
    assert found("mondaytag", third) == []
    assert found("tuesdaytag", third) == [(3, "Tuesdayish")]
    assert found("tuesdaytag", None) == [(4, "Tuesdayish")]
    assert [len(texts(server, org.owner, moment)) for moment in (first, second, third, None)] == [1, 1, 1, 1]
    # The vectors of the new title are the index job's to make; those that are there go on being found until then.
    assert ids(search(server, org.owner, None, one_hot(1))) == [item]


def test_filters_ask_the_version_valid_then(server: Server, org: Org) -> None:
    fields = {
        "title": "Rule", "tags": ["old", "both"], "metadata": {"a": 1}, "importance": 0.9, "type": "note",
        "source_ref": "first.md", "agent_name": "ann",
    }  # fmt: skip
    item = write_one(server, org.owner, "Mondays", one_hot(1), **fields)
    first = clock(server)
    edit(
        server, org.owner, item, 1,
        title="Law", tags=["new", "both"], metadata={"a": 2}, importance=0.1, type="decision",
        source_ref="second.md", agent_name="ben",
    )  # fmt: skip
    old: list[dict[str, Any]] = [
        {"title": "rule"}, {"tags": ["old"]}, {"tags": ["both", "old"]}, {"tags_any": ["old", "x"]},
        {"metadata": {"a": 1}},
        {"priority_min": 0.5}, {"type": "note"}, {"updated_before": first.isoformat()},
        {"any": [{"title": "rule"}, {"kind": "page"}]}, {"source_ref": ["first.md"]}, {"agent_name": "ann"},
    ]  # fmt: skip
    new: list[dict[str, Any]] = [
        {"title": "law"}, {"tags": ["new"]}, {"tags_any": ["new"]}, {"metadata": {"a": 2}}, {"priority_max": 0.5},
        {"type": "decision"}, {"updated_after": first.isoformat()}, {"source_ref": "second.md"}, {"agent_name": "ben"},
    ]  # fmt: skip
    for filters in old:
        assert texts(server, org.owner, first, filters=filters) == ["Mondays"], filters
        assert texts(server, org.owner, None, filters=filters) == [], filters
    for filters in new:
        assert texts(server, org.owner, first, filters=filters) == [], filters
        assert texts(server, org.owner, None, filters=filters) == ["Mondays"], filters
    assert texts(server, org.owner, first, filters={"tags": []}) == []
    assert texts(server, org.owner, first, filters={"tags_any": []}) == []


def test_when_it_happened_is_what_the_version_said(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "Mondays", occurred_at="2026-01-10T00:00:00Z")
    first = clock(server)
    edit(server, org.owner, item, 1, occurred_at="2026-03-10T00:00:00Z")

    def found(as_of: datetime | None, **filters: str) -> bool:
        return bool(ask(server, org.owner, "Mondays", as_of, filters=filters))

    for as_of, month in ((first, 1), (None, 3)):
        start, end = (f"2026-0{number}-01T00:00:00Z" for number in (month, month + 1))
        assert found(as_of, occurred_after=start, occurred_before=end)
        assert not found(as_of, occurred_before=start)
        assert not found(as_of, occurred_after=end)


def test_boosts_of_the_past_are_those_of_the_version(server: Server, org: Org) -> None:
    """Whom it was attributed to, when it happened, and how important it was."""
    fields = {"agent_name": "ann", "occurred_at": "2026-01-10T00:00:00Z", "importance": 0.9}
    item = write_one(server, org.owner, "Mondays", **fields)
    first = clock(server)
    edit(server, org.owner, item, 1, agent_name="ben", occurred_at="2026-03-10T00:00:00Z", importance=0.1)

    def told(query: str, as_of: datetime | None) -> dict[str, Any]:
        moment = as_of and as_of.isoformat()
        answer = search(server, org.owner, query, as_of=moment, explain=True, profile="vector_metadata")
        [candidate] = answer["explain"]["candidates"]
        assert isinstance(candidate, dict)
        return candidate

    assert "author" in told("what ann said of Mondays", first)["boosts"]
    assert "author" not in told("what ann said of Mondays", None).get("boosts", {})
    assert "date" in told("Mondays in January 2026", first)["boosts"]
    assert "date" not in told("Mondays in January 2026", None).get("boosts", {})
    then, now = (told("Mondays in 2026", as_of)["metadata"] for as_of in (first, None))
    assert then > now > 0


def test_what_was_archived_later_was_there(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "zebra", one_hot(1))
    first = clock(server)
    move(server, org.owner, "archive_item", item)
    second = clock(server)
    move(server, org.owner, "restore_item", item)
    third = clock(server)
    move(server, org.owner, "archive_item", item)
    fourth = clock(server)

    for moment, there in ((first, True), (second, False), (third, True), (fourth, False)):
        assert texts(server, org.owner, moment) == (["zebra"] if there else []), moment
        assert texts(server, org.owner, moment, "{active,archived}") == ["zebra"], moment
        assert [r["id"] for r in ask(server, org.owner, "zebra", moment)] == ([item] if there else []), moment
    assert [r["id"] for r in ask(server, org.owner, "zebra", fourth, include_archived=True)] == [item]


def test_the_tier_is_that_of_then(server: Server, org: Org) -> None:
    """The audit log keeps the one that an item left for the archive."""
    item = write_one(server, org.owner, "zebra", one_hot(1))
    server.rows("update almagest.items set tier = 'hot'")
    first = clock(server)
    move(server, org.owner, "archive_item", item)
    second = clock(server)
    move(server, org.owner, "restore_item", item)
    third = clock(server)
    move(server, org.owner, "archive_item", item)

    for moment, tier in ((first, "hot"), (second, "archive"), (third, "hot"), (clock(server), "archive")):
        for asked in ("hot", "warm", "archive"):
            found = texts(server, org.owner, moment, "{active,archived}", {"tier": asked})
            assert found == (["zebra"] if asked == tier else []), (moment, asked)


# Why an item is not in an answer of the past


def why_not(server: Server, caller: Caller, item: str, query: str, as_of: datetime | None, **fields: Any) -> Any:
    """What the search says of the item."""
    told = search(server, caller, query, as_of=as_of.isoformat() if as_of else None, why_not=item, **fields)
    return told["explain"]["why_not"]


def test_why_not_judges_the_filters_by_the_version_valid_then(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "Mondays", title="Rule", tags=["old"], agent_name="ann", source_ref="first.md")
    first = clock(server)
    edit(server, org.owner, item, 1, title="Law", tags=["new"], agent_name="ben", source_ref="second.md")
    old = {"title": "rule", "tags": ["old"], "agent_name": "ann", "source_ref": "first.md", "any": [{"title": "rule"}]}
    new = {"title": "law", "tags": ["new"], "agent_name": "ben", "source_ref": "second.md", "any": [{"title": "law"}]}
    for then, filters, step in (
        (first, old, "no_match"), (first, new, "filters"), (None, old, "filters"), (None, new, "no_match"),
    ):  # fmt: skip
        told = why_not(server, org.owner, item, "quagga", then, filters=filters)
        assert told["step"] == step, (then, filters)
        assert told.get("filters") == (sorted(filters) if step == "filters" else None)
    assert why_not(server, org.owner, item, "quagga", first, filters={**old, "type": "decision"})["filters"] == ["type"]
    told = why_not(server, org.owner, item, "quagga", first, filters=new)
    assert told["reason"] == "What it was then does not pass the filters agent_name, any, source_ref, tags, title."


def test_why_not_tells_the_state_of_then(server: Server, org: Org) -> None:
    before = clock(server)
    item = write_one(server, org.owner, "zebra")
    first = clock(server)
    move(server, org.owner, "archive_item", item)
    second = clock(server)
    move(server, org.owner, "restore_item", item)
    told = [why_not(server, org.owner, item, "quagga", moment) for moment in (before, first, second, None)]
    assert [entry["step"] for entry in told] == ["as_of", "no_match", "state", "no_match"]
    assert (told[2]["state"], told[2]["reason"]) == ("archived", "It was archived then.")
    assert told[0]["reason"] == "It was not there yet at that time."
    assert why_not(server, org.owner, item, "quagga", second, include_archived=True)["step"] == "no_match"
    move(server, org.owner, "archive_item", item)
    assert why_not(server, org.owner, item, "quagga", first)["step"] == "no_match"
    assert why_not(server, org.owner, item, "zebra", first)["step"] == "answer"
    assert why_not(server, org.owner, item, "zebra", None)["step"] == "state"


def test_why_not_compares_the_text_of_then(server: Server, org: Org) -> None:
    server.call("put_profile", org.owner, {"name": "user_search", "knobs": {"candidates": 1}})
    for number in range(4):
        write_one(server, org.owner, f"zebra zebra zebra {number}")
    item = write_one(server, org.owner, "a zebra, but among so many other words that it hardly counts")
    first = clock(server)
    edit(server, org.owner, item, 1, content="a quagga, but among so many other words that it hardly counts")
    told = why_not(server, org.owner, item, "zebra", first, k=1)
    assert (told["step"], told["matched"]) == ("candidates", ["zebra"])
    assert why_not(server, org.owner, item, "zebra", None, k=1)["step"] == "no_match"
    server.rows("delete from almagest.chunks where item_id = %s and version = 1", item)
    told = why_not(server, org.owner, item, "zebra", first, k=1)
    assert (told["step"], told["reason"]) == ("not_indexed", "Its text of that time is not indexed.")


def test_why_not_finds_the_twin_of_then(server: Server, org: Org) -> None:
    one, two = (write_one(server, org.owner, "We retry.", source_ref=ref) for ref in "ab")
    first = clock(server)
    [shown] = [result["id"] for result in ask(server, org.owner, "retry", first)]
    other = two if shown == one else one
    edit(server, org.owner, other, 1, content="Something else.")
    [shown] = [result["id"] for result in ask(server, org.owner, "retry", first)]
    other = two if shown == one else one
    told = why_not(server, org.owner, other, "retry", first)
    assert (told["step"], told["twin"]) == ("duplicate", shown)


def test_what_was_revoked_later_was_current(server: Server, org: Org) -> None:
    first = clock(server)
    item = org.item("zebra fact", one_hot(1), kind="fact", type="fact", created_at=first, updated_at=first)
    server.rows(
        "insert into almagest.facts (item_id, org_id, subject, relation, status, revoked_at)"
        " values (%s, %s, 's', 'r', 'revoked', %s)",
        *(item, org.id, first + HOUR),
    )
    server.rows("update almagest.items set state = 'revoked' where id = %s", item)
    server.rows("select engine.refresh_visibility(i) from almagest.items as i")
    other = org.item("zebra of no time", kind="fact", type="fact", state="revoked", created_at=first, updated_at=first)

    assert texts(server, org.owner, first + HOUR / 2) == ["zebra fact"]
    assert [r["id"] for r in ask(server, org.owner, "zebra", first + HOUR / 2)] == [item]
    assert texts(server, org.owner, first + HOUR) == texts(server, org.owner, None) == []
    assert other


def test_what_is_provisional_was_never_current(server: Server, org: Org) -> None:
    org.item("zebra", state="provisional")
    assert texts(server, org.owner, clock(server)) == []


def test_erasing_leaves_nothing_of_any_time(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "zebra one", one_hot(1))
    first = clock(server)
    edit(server, org.owner, item, 1, content="zebra two")
    edit(server, org.owner, item, 2, title="Three")
    assert texts(server, org.owner, first) == ["zebra one"]

    move(server, org.owner, "erase_item", item)

    assert texts(server, org.owner, first) == []
    assert ask(server, org.owner, "zebra", first) == []
    for table in ("chunks", "lexical", "embeddings", "item_versions"):
        assert server.value(f"select count(*) from almagest.{table}") == 0, table


def test_an_old_version_is_seen_by_those_who_see_the_item_now(server: Server, org: Org) -> None:
    org.client("north")
    insider, outsider = org.member(clients=["north"]), org.member()
    private = write_one(server, insider, "private zebra", private=True)
    shared = write_one(server, insider, "shared zebra")
    first = clock(server)
    for item in (private, shared):
        edit(server, insider, item, 1, content=f"a lion, {item}")
    assert texts(server, insider, first) == ["private zebra", "shared zebra"]
    assert texts(server, outsider, first) == texts(server, org.owner, first) == ["shared zebra"]

    server.rows("update almagest.items set client_id = (select id from almagest.clients) where id = %s", shared)
    server.rows("select engine.refresh_visibility(i) from almagest.items as i")
    assert texts(server, outsider, first) == []
    assert texts(server, insider, first) == ["private zebra", "shared zebra"]
    copies = server.rows("select client_id is not null from almagest.lexical where item_id = %s", shared)
    assert copies == [True, True]
    assert server.rows("select distinct state from almagest.lexical order by 1") == ["active", "replaced"]
    assert server.rows("select distinct state from almagest.embeddings order by 1") == ["active"]


def test_everyday_search_never_meets_what_was_replaced(server: Server, org: Org) -> None:
    """Not in results, in frequencies, in neighbours, in the index job or in the item's own chunks."""
    talk = {"id": "standup"}
    [one, two, three] = [
        str(result["id"])
        for result in write(
            server, org.owner,
            *(memory(f"turn {n} zebra{n}", one_hot(n), conversation={**talk, "position": n}) for n in (1, 2, 3)),
        )
    ]  # fmt: skip
    for version in range(1, 6):
        edit(server, org.owner, two, version, content=f"turn 2 lion{version}", title=f"T{version}")

    def weights(term: str) -> Any:
        return server.value(
            "select to_jsonb(engine.weigh_terms(c, null, %s, '{active}')) from engine.resolve_caller(%s) as c",
            *([term], Jsonb(org.owner)),
        )

    assert weights("zebra2")["terms"] is None
    assert weights("turn")["size"] == 3
    [chunk] = server.rows("select id from almagest.chunks where item_id = %s", one)
    around = server.rows(
        "select w.item_id::text from engine.resolve_caller(%s) as c"
        " cross join lateral engine.weigh_terms(c, 'turn', '{turn}', '{active}') as q"
        " cross join lateral engine.word_scores(q, 1, array[%s]::bigint[], engine.default_knobs()) as w",
        *(Jsonb(org.owner), chunk),
    )
    assert sorted(around) == sorted([one, two, three])
    for archived in (False, True):
        assert search(server, org.owner, "zebra2 lion4", include_archived=archived)["results"] == []
        assert search(server, org.owner, None, one_hot(2), include_archived=archived)["results"] == []
    assert [chunk["text"] for chunk in server.call("get_chunks", org.owner, {"id": two})["chunks"]] == ["turn 2 lion5"]
    assert server.call("index_status", org.owner)["pending"] == 0
    assert server.rows("select engine.refresh_statistics(0, 1)") == [1]
    assert server.rows("select documents from almagest.partition_statistics") == [3]
    assert server.rows("select documents from almagest.term_statistics where term like 'zebra2%%' and %s", True) == []


def test_the_index_job_replaces_the_current_chunks_alone(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "zebra one", one_hot(1))
    first = clock(server)
    edit(server, org.owner, item, 1, title="Title")
    [(leased, version)] = server.rows("select item_id::text, version from engine.lease_items('w', 10, 60)")
    chunks = json.dumps(chunks_of(["zebra ", "one"], [one_hot(5), one_hot(6)]))
    assert (
        server.value("select engine.index_item('w', %s, %s, %s, %s)", leased, version, chunks, MODEL) == "search_ready"
    )

    assert texts(server, org.owner, None) == ["one", "zebra "]
    assert texts(server, org.owner, first) == ["zebra one"]
    assert ids(search(server, org.owner, None, one_hot(6))) == [item]
    assert search(server, org.owner, None, one_hot(1))["results"] == []


def test_versions_from_before_chunks_were_kept_are_not_shown_with_later_text(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "zebra one", one_hot(1))
    first = clock(server)
    edit(server, org.owner, item, 1, content="zebra two")
    server.rows("delete from almagest.chunks where version = 1")
    assert texts(server, org.owner, first) == []


@pytest.mark.parametrize("as_of", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2026-01-31T12:00:00+14:00"])
def test_any_time_can_be_asked_for(server: Server, org: Org, as_of: str) -> None:
    item = write_one(server, org.owner, "zebra", one_hot(1))
    for query, vector in (("zebra", None), (None, one_hot(1)), ("zebra", one_hot(1))):
        found = ids(search(server, org.owner, query, vector, as_of=as_of))
        assert found == ([item] if as_of.startswith("9999") else [])


def test_a_trace_tells_the_time_that_was_asked_for(server: Server, org: Org) -> None:
    write_one(server, org.owner, "zebra")
    search(server, org.owner, "zebra", as_of="2026-01-31T12:00:00Z")
    assert server.value("select trace ->> 'as_of' from almagest.retrievals") == "2026-01-31T12:00:00Z"


def test_an_edit_changes_nothing_of_how_the_text_of_before_is_scored(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "Ticket ZKV-8801 broke the parsnip scheduler.", one_hot(1))
    for number in range(20):
        write_one(server, org.owner, f"ZKV 8801 is spaced in note{number}x")
    before = clock(server)
    [first, *_] = ask(server, org.owner, "ZKV-8801", None)
    edit(server, org.owner, item, 1, content="Something else altogether.")
    [then, *_] = ask(server, org.owner, "ZKV-8801", before)
    assert (first["id"], then["id"]) == (item, item)
    assert then["scores"]["keyword"] == pytest.approx(first["scores"]["keyword"], abs=0.02)


def test_what_was_replaced_counts_in_no_weight(server: Server, org: Org) -> None:
    """Document frequencies are as they are now: edits of then and of now weigh the same words the same."""
    often = write_one(server, org.owner, "wombat wombat unique walrus")
    for number in range(4):
        write_one(server, org.owner, f"a walrus of number{number}x")
    before = clock(server)
    [first, *_] = ask(server, org.owner, "wombat walrus", before)
    for version in range(1, 12):
        edit(server, org.owner, often, version, content=f"wombat wombat unique walrus {version}")
    [then, *_] = ask(server, org.owner, "wombat walrus", before)
    [now, *_] = ask(server, org.owner, "wombat walrus", None)
    assert first["id"] == then["id"] == now["id"] == often
    # the text of now is longer by a word
    assert now["scores"]["keyword"] == pytest.approx(first["scores"]["keyword"], abs=0.03)
    assert then["scores"]["keyword"] == pytest.approx(first["scores"]["keyword"], abs=0.01)


def test_words_that_nobody_holds_any_longer_are_found_in_the_past(server: Server, org: Org) -> None:
    archived = write_one(server, org.owner, "zebra archived")
    edited = write_one(server, org.owner, "zebra edited")
    before = clock(server)
    move(server, org.owner, "archive_item", archived)
    assert {result["id"] for result in ask(server, org.owner, "zebra", before)} == {archived, edited}
    edit(server, org.owner, edited, 1, content="a lion")
    assert {result["id"] for result in ask(server, org.owner, "zebra", before)} == {archived, edited}
    move(server, org.owner, "archive_item", edited)
    assert {result["id"] for result in ask(server, org.owner, "zebra", before)} == {archived, edited}


def test_what_was_said_later_lends_no_words_to_what_was_said_before(server: Server, org: Org) -> None:
    """It scores as the same does in a conversation that ended."""

    def say(text: str, talk: str, position: int) -> str:
        return write_one(server, org.owner, text, conversation={"id": talk, "position": position})

    ended = say("Shall we ship the crate on monday evening", "ended", 5)
    goes_on = say("Shall we ship the crate on tuesday evening", "goes on", 5)
    first = clock(server)

    def keyword(as_of: datetime | None) -> dict[str, float]:
        results = ask(server, org.owner, "ship crate pelican", as_of)
        return {result["id"]: result["scores"]["keyword"] for result in results}

    def assert_alike() -> None:
        then = keyword(first)
        assert set(then) == {ended, goes_on}
        assert then[goes_on] == then[ended]

    later = [say("The pelican pelican pelican says yes", "goes on", position) for position in (6, 3, 4, 7)]
    assert_alike()
    edit(server, org.owner, later[0], 1, content="The crate, the crate, the crate")
    move(server, org.owner, "archive_item", later[1])
    assert_alike()
    now = keyword(None)
    assert now[goes_on] > 1.2 * now[ended]


def test_slices_that_were_replaced_lend_no_words_to_each_other(server: Server, org: Org) -> None:
    """Wherever a profile lets the slices of one document lend them."""
    knobs = {"neighbour_slice": 1, "fused_floor": 0}
    server.call("put_profile", org.owner, {"name": "user_search", "knobs": knobs})
    item = write_one(server, org.owner, "iguanodox first version")
    first = clock(server)
    edit(server, org.owner, item, 1, content="gerbil gerbil second version")
    [before] = ask(server, org.owner, "iguanodox gerbil", first)
    edit(server, org.owner, item, 2, content="gerbil gerbil third version")
    [after] = ask(server, org.owner, "iguanodox gerbil", first)
    assert (before["version"], after["version"]) == (1, 1)
    assert after["scores"]["keyword"] == pytest.approx(before["scores"]["keyword"], abs=0.01)
