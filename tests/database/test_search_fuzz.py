"""Text as an attack: whatever stands in a query, a filter, a tag or a profile's name, it stays text.

A search gives an answer, or a problem with a status of 400 to 499; nothing that it was sent is run.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.local.postgres import Postgres
from tests.database.support import (
    MODEL,
    Org,
    Refused,
    attempt,
    ids,
    literal,
    memory,
    one_hot,
    search,
    serve,
    write,
    write_one,
)
from tests.support import Database, clone

NASTY = [
    "'", "''", "'''", '"', '""', "\\", "\\\\", "\\'", "\\\\'", "$$", "$a$", "$1", "$2", "${x}", ";", "; --", "--", "/*",
    "*/", "%", "%%", "%s", "%L", "%I", "%1$s", "%1$L", "%n$s", "{", "}", "{0}", "{,}", '{"a"}', "[", "]", "(", ")", "&",
    "|", "!", "<->", "<2>", ":*", ":A", ":a,b", "::text", "::regclass", "@@", "?", "?|", "~", "^", "=", ",", "null",
    "NULL", "\\N", "true", "E'\\x41'", "U&'\\0041'", "\\u0041", "\\x41", "$$ || pg_sleep(10) || $$",
    "' || pg_sleep(9) || '", "'::tsquery", "'); drop table almagest.items; --", "' or 1=1 --", "1; select pg_sleep(9)",
    "pg_sleep(10)", "current_setting('x')", "zebra", "Zebra's", "SID-48", "a.b", "C++", "#7", "漢字", "각", "é",
    "e\u0301", "ﬁ", "İ", "ß", "\u200b", "\u202e", "\ufeff", "\ufffd", "\ufffe", "\U0001f600", "\U0010ffff", "\x01",
    "\x1b[31m", "\x7f", "\t", "\n", "\r\n", " ",
]  # fmt: skip
# A lone surrogate is no text, and a zero byte is none for Postgres: the edge takes both out (see test_searches_wire).
CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")
PIECES = st.one_of(st.sampled_from(NASTY), st.text(CHARACTERS, max_size=12))
TEXT = st.lists(PIECES, max_size=12).map("".join)
NAMES = st.lists(TEXT, max_size=4)
FUZZ = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.one_of(TEXT, NAMES),
        "type": st.one_of(TEXT, NAMES),
        "tags": NAMES,
        "tags_any": NAMES,
        "project": st.one_of(TEXT, NAMES),
        "client": st.one_of(TEXT, NAMES),
        "deal": st.one_of(TEXT, NAMES),
        "origin": st.one_of(TEXT, NAMES),
        "agent_name": st.one_of(TEXT, NAMES),
        "source_ref": TEXT,
        "title": TEXT,
        "conversation": TEXT,
    },
)


@pytest.fixture(scope="module")
def place(cluster: Postgres, template_database: Database) -> Iterator[Org]:
    """An org with a few items, in a database of its own."""
    with clone(cluster, template_database.name) as copy, serve(copy) as server:
        org = Org(server, "acme")
        for number in range(12):
            write_one(
                server, org.owner, f"zebra it's SID-{number} $$ %s \\ {number}", one_hot(number),
                title=f"%L {number}", tags=["'; drop", "%s"], agent_name="o'neill", source_ref="a\\b",
                conversation={"id": "$1", "position": number} if number % 2 else None,
            )  # fmt: skip
        # more than a pruned keyword leg looks at one by one
        write(server, org.owner, *(memory(f"filler it's %s number{n}") for n in range(1100)))
        server.call("put_profile", org.owner, {"name": "exhaustive", "knobs": {"exhaustive": True}})
        server.api.execute("set statement_timeout = '5s'")
        yield org


def answered(place: Org, request: dict[str, Any]) -> Any:
    """The answer, or a refusal that is one; anything else raises."""
    answer = attempt(place.server, "search", place.owner, request)
    if isinstance(answer, Refused):
        assert 400 <= answer.status < 500, answer
        assert answer.code
        assert "\n" not in answer.message
    else:
        assert answer["mode"] in ("hybrid", "vector", "lexical", "substring")
    return answer


@FUZZ
@given(query=TEXT, vector=st.booleans(), exhaustive=st.booleans())
def test_any_query_is_only_text(place: Org, query: str, vector: bool, exhaustive: bool) -> None:
    profile = "exhaustive" if exhaustive else "user_search"
    embedding = {"embedding": literal(one_hot(1, 2)), "model": MODEL} if vector else {}
    request = {"query": query, "k": 20, "profile": profile, "explain": True, **embedding}
    answer = answered(place, request)
    assert not isinstance(answer, Refused)
    # what it made of the query reads back as text, and is bounded
    assert len(answer["explain"]["terms"] or []) <= 64
    trace = place.server.call("get_trace", place.owner, {"id": answer["trace_id"]})
    assert trace["query"] == query[:1000]


@FUZZ
@given(query=TEXT, filters=FILTERS)
def test_any_filter_is_only_text(place: Org, query: str, filters: dict[str, Any]) -> None:
    answer = answered(place, {"query": query or "zebra", "filters": filters, "explain": True})
    if not isinstance(answer, Refused):
        trace = place.server.call("get_trace", place.owner, {"id": answer["trace_id"]})
        assert trace["filters"] == filters


@FUZZ
@given(name=TEXT)
def test_any_profile_name_is_only_text(place: Org, name: str) -> None:
    answer = answered(place, {"query": "zebra", "profile": name})
    known = {p["name"] for p in place.server.call("list_profiles", place.owner)["profiles"]}
    if name in known:
        assert answer["results"]
    else:
        assert isinstance(answer, Refused)
        assert (answer.status, answer.code) == (422, "unknown_profile")
    for function in ("get_profile", "delete_profile"):
        said = attempt(place.server, function, place.owner, {"name": name})
        assert not isinstance(said, Refused) or 400 <= said.status < 500


@FUZZ
@given(model=TEXT, reason=TEXT, request_id=TEXT)
def test_what_the_functions_add_is_only_text(place: Org, model: str, reason: str, request_id: str) -> None:
    embedding = literal(one_hot(1))
    request = {"query": "zebra", "embedding": embedding, "model": model, "request_id": request_id}
    answer = answered(place, {**request, "degraded_reason": reason})
    assert ids(answer)


@FUZZ
@given(vector=st.one_of(TEXT, st.lists(st.one_of(TEXT, st.floats(), st.integers()), max_size=5)))
def test_any_vector_is_one_or_refused(place: Org, vector: Any) -> None:
    if isinstance(vector, list):
        vector = [value if isinstance(value, (str, int)) else repr(value) for value in vector]
    answer = answered(place, {"query": "zebra", "embedding": vector, "model": MODEL})
    assert isinstance(answer, Refused)
    assert (answer.status, answer.code) == (422, "invalid_vector")


@settings(FUZZ, max_examples=15)
@given(text=TEXT.filter(str.strip), tag=TEXT.filter(str.strip), title=TEXT, name=TEXT.filter(str.strip))
def test_what_is_stored_is_found_by_filters_of_the_same_text(
    place: Org, text: str, tag: str, title: str, name: str
) -> None:
    """As attributes of an item, odd texts are searched with it and match themselves alone."""
    server = place.server
    fields = {"title": title[:400], "tags": [tag[:100]], "agent_name": name[:200], "source_ref": text[:200]}
    item = write_one(server, place.owner, f"{text} waterbuck", one_hot(50), **fields)
    for filters in ({"tags": [tag[:100]]}, {"tags_any": [tag[:100], "other"]}, {"agent_name": name[:200]},
                    {"source_ref": text[:200]}):  # fmt: skip
        assert item in ids(search(server, place.owner, "waterbuck", k=100, filters=filters)), filters
    assert item in ids(search(server, place.owner, f"waterbuck {text} {tag}", one_hot(50), k=100))
    server.call("erase_item", place.owner, {"id": item, "strict": True})


def _within(definition: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a knob may have, its bounds above all."""
    if definition["kind"] == "boolean":
        return st.booleans()
    if definition["kind"] == "choice":
        return st.sampled_from(definition["choices"])
    low, high = definition["minimum"], definition["maximum"]
    if definition["kind"] == "integer":
        return st.one_of(st.sampled_from([int(low), int(high)]), st.integers(int(low), int(high)))
    return st.one_of(st.sampled_from([low, high, low + 1e-6]), st.floats(low, high))


@settings(FUZZ, max_examples=25)
@given(data=st.data())
def test_any_valid_knobs_leave_a_search_that_answers(place: Org, data: st.DataObject) -> None:
    server = place.server
    profile = server.call("get_profile", place.owner, {"name": "user_search"})
    strategies = {d["knob"]: _within(d) for d in profile["definitions"]}
    knobs = data.draw(st.fixed_dictionaries({}, optional=strategies))
    said = attempt(server, "put_profile", place.owner, {"name": "odd", "knobs": knobs})
    if isinstance(said, Refused):
        assert (said.status, said.code) == (422, "invalid_knobs")
        return
    for query, vector in (("zebra it's filler in January 2026", one_hot(1)), (None, one_hot(1)), ("when zebra", None)):
        answer = search(server, place.owner, query, vector, k=5, profile="odd", explain=True)
        for result in answer["results"]:
            for name, score in result["scores"].items():
                assert score is None or 0 <= score <= 1, (name, knobs)


def test_nothing_was_run(place: Org) -> None:
    """After all of these: the tables are there, and nothing was stored or lost."""
    server = place.server
    assert server.value("select count(*) from almagest.items where state <> 'erased'") == 1112
    assert server.value("select count(*) from almagest.orgs") == 1
    assert server.value("select count(*) from pg_class where relnamespace = 'almagest'::regnamespace") > 30
