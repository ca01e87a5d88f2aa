"""A chunk's score with the words around it, as a plain Python reference has it, after each kind of change."""

import random
from dataclasses import dataclass
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.database.support import (
    Org,
    Server,
    chunks_of,
    digest,
    ids,
    memory,
    search,
    unique_key,
    write,
    write_one,
)

WORDS = ["deploy", "rollback", "gateway", "token", "cache", "queue", "SID-48"]
# Of the terms of these words.
IDENTIFIERS = {"sid-48"}
TIMES = ["", "", " yesterday", " in March 2024"]
KNOBS: dict[str, Any] = {
    "neighbour_previous": 0.8,
    "neighbour_next": 0.5,
    "neighbour_two_away": 0.4,
    "neighbour_slice": 0.3,
    "message_keyword_scale": 30.0,
    "keyword_scale": 10.0,
    "length_normalisation": 0.75,
    "message_length_normalisation": 0.2,
}


@dataclass(frozen=True)
class Row:
    """A chunk's own terms and its place, as stored; of its text, what was asked of it anew."""

    chunk: int
    item: str
    sequence: str
    message: bool
    length: int
    counts: dict[str, int]
    beside: set[str]
    flags: tuple[bool, bool, int]


@dataclass(frozen=True)
class Query:
    """What the engine knows of a query."""

    idfs: dict[str, float]
    average_length: float
    all_idf: float
    asked: int


@dataclass(frozen=True)
class Scores:
    """What is said of a chunk."""

    score: float
    matched: float
    identifiers: float
    attributes: int


def _sequences(server: Server) -> list[list[Row]]:
    """All rows by conversation or document, in order; worked out from the items themselves, not from the index."""
    found: dict[Any, list[Row]] = {}
    for key, chunk, item, sequence, message, length, lexemes, counts, beside, *flags in server.rows(
        "select coalesce(i.conversation_id || ' ' || coalesce(i.user_id::text, ''), i.id::text) || i.state,"
        " l.chunk_id, i.id::text, l.sequence::text, i.conversation_id is not null, l.length,"
        " array(select lexeme from unnest(l.terms)), array(select cardinality(positions) from unnest(l.terms)),"
        " array(select unnest(tsvector_to_array(engine.tokenise(i.title || ' ' || coalesce(("
        "   select string_agg(t.tag, ' ') from almagest.item_tags as t where t.item_id = i.id), ''))))),"
        " k.text ~ '(yesterday|March 2024)', k.text ~ '[?]$', hashtextextended(k.text, 0)"
        " from almagest.lexical as l join almagest.items as i on i.id = l.item_id"
        " join almagest.chunks as k on k.id = l.chunk_id and k.version = i.version"
        " order by coalesce(i.conversation_position, k.position), l.chunk_id"
    ):
        own = dict(zip(lexemes, counts, strict=True))
        row = Row(chunk, item, sequence, message, length, own, set(beside), (flags[0], flags[1], flags[2]))
        found.setdefault(key, []).append(row)
    return list(found.values())


def _reference(sequences: list[list[Row]], query: Query, knobs: dict[str, Any]) -> dict[int, Scores]:
    """Scores by chunk."""
    found = {}
    for rows in sequences:
        for place, row in enumerate(rows):
            shares = (
                {-2: knobs["neighbour_two_away"], -1: knobs["neighbour_previous"], 0: 1.0}
                | {1: knobs["neighbour_next"], 2: knobs["neighbour_two_away"]}
                if row.message
                else {-1: knobs["neighbour_slice"], 0: 1.0, 1: knobs["neighbour_slice"]}
            )
            kind = "message_" if row.message else ""
            b, scale = knobs[f"{kind}length_normalisation"], knobs[f"{kind}keyword_scale"]
            k = 1.2 * (1 - b + b * row.length / query.average_length)
            total = held = own_identifiers = 0.0
            for term, idf in query.idfs.items():
                frequency = sum(
                    share * rows[place + step].counts.get(term, 0)
                    for step, share in shares.items()
                    if 0 <= place + step < len(rows)
                )
                total += idf * 2.2 * frequency / (frequency + k)
                held += term in row.counts
                own_identifiers += idf if term in IDENTIFIERS and term in row.counts else 0
            found[row.chunk] = Scores(
                total / (total + scale),
                held / query.asked,
                own_identifiers / query.all_idf,
                len(row.beside & set(query.idfs)),
            )
    return found


def _near(sequences: list[list[Row]], seeds: set[int], knobs: dict[str, Any]) -> set[int]:
    """What is scored: the seeds, and of their conversations all up to two away, of documents where slices count."""
    found = set()
    for rows in sequences:
        reach = 2 if rows[0].message or knobs["neighbour_slice"] > 0 else 0
        places = [place for place, row in enumerate(rows) if row.chunk in seeds]
        found |= {row.chunk for place, row in enumerate(rows) if any(abs(place - other) <= reach for other in places)}
    return found


def _assert_same(server: Server, org: Org, rng: random.Random) -> None:
    sequences = _sequences(server)
    rows = {row.chunk: row for sequence in sequences for row in sequence}
    for _ in range(6):
        asked = " ".join(rng.sample([*WORDS, "absent"], k=rng.randint(1, 4)))
        seeds = set(rng.sample(list(rows), k=min(len(rows), rng.randint(1, 4))))
        knobs = KNOBS | {"neighbour_slice": rng.choice([0, 0.3]), "neighbour_next": rng.choice([0, 0.5])}
        weighed = (
            "engine.resolve_caller(%s) as c cross join engine.query_terms(%s) as words"
            " cross join lateral engine.weigh_terms(c, %s, words, '{active}') as q"
        )
        of_query = (Jsonb(org.owner), asked, asked)
        columns = "q.terms, q.idfs, q.average_length, q.all_idf, cardinality(words)"
        [(known, idfs, *whole)] = server.rows(f"select {columns} from {weighed}", *of_query)
        if not known:
            continue
        scored = server.rows(
            f"select w.* from {weighed}"
            " cross join engine.word_scores(q, cardinality(words), %s::bigint[], engine.default_knobs() || %s) as w",
            *(*of_query, sorted(seeds), Jsonb(knobs)),
        )
        expected = _reference(sequences, Query(dict(zip(known, idfs, strict=True)), *whole), knobs)
        assert len(scored) == len({chunk for chunk, *_ in scored})
        assert {chunk for chunk, *_ in scored} == _near(sequences, seeds, knobs)
        for chunk, item, sequence, score, matched, identifiers, attributes, *flags in scored:
            row, wanted = rows[chunk], expected[chunk]
            assert (str(item), str(sequence), tuple(flags)) == (row.item, row.sequence, row.flags)
            assert (sequence != item) == row.message
            assert score == pytest.approx(wanted.score, abs=1e-6)
            assert matched == pytest.approx(wanted.matched, abs=1e-6)
            assert identifiers == pytest.approx(wanted.identifiers, abs=1e-6)
            assert attributes == wanted.attributes


def _text(rng: random.Random, unique: int) -> str:
    words = " ".join([*rng.choices(WORDS, k=rng.randint(1, 6)), f"n{unique}x"])
    return words + rng.choice(TIMES) + rng.choice(["", "", "?"])


def _beside(rng: random.Random) -> dict[str, Any]:
    """Sometimes a title and tags, of the same words."""
    return {"title": " ".join(rng.sample(WORDS, k=2)), "tags": rng.sample(WORDS, k=2)} if rng.random() < 0.4 else {}


def _change(server: Server, org: Org, rng: random.Random, what: str, item: str, number: int) -> None:
    """One change in the middle of a conversation."""
    request: dict[str, Any] = {"id": item, "idempotency": unique_key()}
    if what == "append":
        position = server.value("select conversation_position from almagest.items where id = %s", item)
        turn = {"conversation": {"id": "chat", "position": position + 1}}
        write_one(server, org.owner, _text(rng, number), **turn, **_beside(rng))
    elif what == "edit":
        parts = [_text(rng, number), _text(rng, number + 1)]
        content = "".join(parts)
        version = server.value("select version from almagest.items where id = %s", item)
        request |= {"version": version, "changes": {"content": content}, "content_hash": digest(content)}
        server.call("update_item", org.owner, request | {"chunks": chunks_of(parts, [None, None])})
    else:
        server.call(f"{what}_item", org.owner, request)


@pytest.mark.parametrize("seed", range(4))
def test_a_window_is_as_the_conversation_stands(server: Server, org: Org, seed: int) -> None:
    """Right after an append, an edit, an archive, a restore and an erasure in the middle."""
    rng = random.Random(seed)  # noqa: S311
    turns = [
        memory(_text(rng, n), conversation={"id": "chat", "position": 10 * n}, private=n % 7 == 6, **_beside(rng))
        for n in range(14)
    ]
    items = [result["id"] for result in write(server, org.owner, *turns)]
    write(
        server, org.owner, *(memory(_text(rng, 100 + n), conversation={"id": "talk", "position": n}) for n in range(5))
    )
    parts = [_text(rng, 200 + n) for n in range(7)]
    write_one(server, org.owner, "".join(parts), title="The gateway", chunks=chunks_of(parts, [None] * 7))
    _assert_same(server, org, rng)

    steps = ["append", "edit", "archive", "restore", "erase", *rng.choices(["append", "edit", "archive", "erase"], k=4)]
    for number, what in enumerate(steps):
        there = server.rows(
            "select id::text from almagest.items where state = %s and id = any(%s::uuid[]) order by id",
            *("archived" if what == "restore" else "active", items),
        )
        _change(server, org, rng, what, rng.choice(there), 300 + 10 * number)
        _assert_same(server, org, rng)


def test_the_next_search_shows_a_change_in_the_middle(server: Server, org: Org) -> None:
    """An answer is found by what was said before it, as far as that is near."""

    def say(text: str, position: int) -> str:
        return write_one(server, org.owner, text, conversation={"id": "chat", "position": position})

    def found() -> set[str]:
        return set(ids(search(server, org.owner, "zebra")))

    def change(name: str, item: str) -> None:
        server.call(name, org.owner, {"id": item, "idempotency": unique_key()})

    question = say("Where did the zebra go?", 1)
    answer = say("To the river.", 5)
    assert found() == {question, answer}
    first, second = say("Let me think.", 2), say("One moment.", 3)
    assert found() == {question, first, second}
    change("archive_item", first)
    assert found() == {question, second, answer}
    change("restore_item", first)
    assert found() == {question, first, second}
    change("erase_item", second)
    assert found() == {question, first, answer}
    text = "A zebra, of all things."
    request = {"id": first, "version": 1, "changes": {"content": text}, "content_hash": digest(text)}
    request |= {"chunks": chunks_of([text], [None]), "idempotency": unique_key()}
    server.call("update_item", org.owner, request)
    change("archive_item", question)
    assert found() == {first, answer}
    change("erase_item", first)
    assert found() == set()
