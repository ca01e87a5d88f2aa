"""The wire contract: what is taken, what is refused and with which words, what is cleaned."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from almagest.models.base import Request, clean_deeply
from almagest.models.bootstrap import BootstrapRequest
from almagest.models.call import Call
from almagest.models.errors import errors_of
from almagest.models.identity import KeyCreate, MemberRemove, OrgCreate, ScopeGrant
from almagest.models.search import Filters, SearchRequest
from almagest.models.write import BatchWrite, ItemUpdate, MemoryWrite

# What ranks, and so has been decided where there is a cursor.
RANKING = {
    "profile": "user_search", "filters": {}, "as_of": "2026-01-01T00:00:00Z", "include_archived": False,
    "legs": ["keyword"], "level": "item", "explain": True, "why_not": "00000000-0000-0000-0000-000000000000",
}  # fmt: skip
DEEP: dict[str, Any] = {}
for _ in range(20):
    DEEP = {"x": DEEP}
WRONG_FILTERS: dict[str, list[Any]] = {
    "folder": ["x", 1, {}, "\x00", [None], [str(UUID(int=1))] * 51],
    "folder_tree": ["x", True, ["x"]],
    "agent": ["A B", "", 1, ["x"] * 51, "x" * 64],
    "mime_type": ["text", "text/", "/x", "a b/c", 1, "x" * 300, "\u6f22/\u6f22", ["text/plain"] * 51],
    "extension": ["", ".", "a/b", "a b", 1, "x" * 40, "\x00", ["md"] * 51],
    "metadata": ["x", [], 1, {"x": "y" * 8_001}, {"x": DEEP}],
    "tier": ["cold", 1, [1], ["hot"] * 4],
    "source_ref": ["", 1, ["x"] * 51, [""], "x" * 1001],
    "conversation": ["", 1, ["x"] * 51, "x" * 201],
    "updated_after": ["2026-01-01T00:00:00", 1, [], "x" * 100_000],
    "updated_before": ["", {}],
    "priority_max": ["x", 2, -1, True, [0.5]],
    "any": [{}, "x", 1, [{}] * 11, [1], [{"any": []}], [{"user": "x"}], [{"kind": "memo"}]],
}


def errors(model: type[BaseModel], **fields: Any) -> dict[str, str]:
    """Field -> message of what a model refuses."""
    with pytest.raises(ValidationError) as raised:
        model(**fields)
    return {error["field"]: error["message"] for error in errors_of(raised.value, fields)}


class TestMemory:
    def test_of_content_alone(self) -> None:
        memory = MemoryWrite(content="x")
        assert memory.model_dump(mode="json") == {
            "content": "x", "title": None, "type": None, "importance": None, "tags": [], "origin": None,
            "source_ref": None, "conversation": None, "occurred_at": None, "private": False, "project": None,
            "client": None, "deal": None, "agent_name": None, "metadata": {},
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("content", ""),
            ("content", " \n\t\u3000"),
            ("content", "\x00\ud800"),
            ("content", "x" * 1_000_001),
            ("content", None),
            ("content", 1),
            ("title", "x" * 501),
            ("type", ""),
            ("importance", -0.1),
            ("importance", 1.1),
            ("importance", "0.5"),
            ("importance", True),
            ("importance", float("nan")),
            ("tags", "x"),
            ("tags", ["x"] * 51),
            ("tags", [""]),
            ("tags", ["  "]),
            ("tags", ["x" * 101]),
            ("tags", [1]),
            ("tags", None),
            ("origin", "web"),
            ("source_ref", ""),
            ("source_ref", "x" * 1001),
            ("source_ref", "😀" * 400),
            ("conversation", {"id": "c"}),
            ("conversation", {"id": "", "position": 0}),
            ("conversation", {"id": "c", "position": -1}),
            ("conversation", {"id": "c", "position": 2**31}),
            ("conversation", {"id": "c", "position": 1.5}),
            ("conversation", {"id": "c", "position": True}),
            ("conversation", {"id": "c", "position": 0, "x": 1}),
            ("private", "yes"),
            ("private", 1),
            ("project", "Not A Slug"),
            ("agent_name", ""),
            ("metadata", []),
            ("metadata", None),
            ("metadata", {"x": float("nan")}),
            ("metadata", {"x": float("inf")}),
            ("metadata", {"x": "y" * 64_000}),
            ("metadata", {"x": datetime.now(UTC)}),
            ("org", "x"),
            ("kind", "page"),
        ],
    )  # fmt: skip
    def test_refused(self, field: str, value: Any) -> None:
        refused = errors(MemoryWrite, **({"content": "x"} | {field: value}))
        assert len(refused) == 1
        assert next(iter(refused)).startswith(field)

    def test_largest(self) -> None:
        MemoryWrite(
            content="😀" * 1_000_000,
            title="x" * 500,
            tags=[f"{number:03}" + "x" * 97 for number in range(50)],
            source_ref="x" * 1000,
            conversation={"id": "x" * 200, "position": 2**31 - 1},  # type: ignore[arg-type]
            metadata={"x": "y" * 63_900},
        )

    def test_metadata_depth(self) -> None:
        nested: dict[str, Any] = {}
        for _ in range(19):
            nested = {"x": nested}
        assert MemoryWrite(content="x", metadata=nested).metadata == nested
        assert errors(MemoryWrite, content="x", metadata={"x": {"x": nested}}) == {
            "metadata": "must not be nested deeper than 20 levels"
        }

    def test_title_and_tags_are_one_line(self) -> None:
        memory = MemoryWrite(content="x", title=" a\n# b  ", tags=["a", " a ", "b\nc"])
        assert (memory.title, memory.tags) == ("a # b", ["a", "b c"])

    def test_names_that_an_error_repeats_are_one_line(self) -> None:
        """PostgREST puts the error into its status line, where a line end begins a header."""
        assert MemoryWrite(content="x", type="a\r\nX-Header: 1").type == "a X-Header: 1"
        assert ItemUpdate(version=1, type="a\nb").type == "a b"
        search = SearchRequest(query="x", profile="a\nb", filters=Filters(type=["a\nb"]))
        assert (search.profile, search.filters.type) == ("a b", ["a b"])
        assert MemberRemove(member="a\nb").member == "a b"
        assert errors(MemoryWrite, content="x", type="\n") == {"type": "must not be blank"}

    def test_blank_title_is_none(self) -> None:
        assert MemoryWrite(content="x", title=" ").title is None


class TestTimestamp:
    """S20: UTC in and out."""

    @pytest.mark.parametrize(
        ("text", "utc"),
        [
            ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
            ("2026-01-31T00:30:00+02:00", "2026-01-30T22:30:00Z"),
            ("2026-01-31T12:00:00.123456-11:00", "2026-01-31T23:00:00.123456Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
        ],
    )
    def test_becomes_utc(self, text: str, utc: str) -> None:
        assert MemoryWrite(content="x", occurred_at=text).model_dump(mode="json")["occurred_at"] == utc  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("value", "says"),
        [
            ("2026-01-31T12:00:00", "must carry an offset"),
            ("2026-01-31", "must carry an offset"),
            ("yesterday", "must be a date and time"),
            ("", "must be a date and time"),
            ("1700000000", "must be a date and time"),
            ("+10000-01-01T00:00:00Z", "must be a date and time"),
            ("294277-01-01T00:00:00Z", "must be a date and time"),
            ("2026-02-30T00:00:00Z", "must be a date and time"),
            ("0001-01-01T00:00:00+05:00", "must lie between"),
            ("9999-12-31T23:59:59-05:00", "must lie between"),
            (1700000000, "must be a string"),
            (True, "must be a string"),
        ],
    )
    def test_refused(self, value: Any, says: str) -> None:
        assert errors(MemoryWrite, content="x", occurred_at=value)["occurred_at"].startswith(says)


class TestCleaning:
    """W8: cleaned, and said so."""

    def test_is_said(self) -> None:
        memory = MemoryWrite(content="a\x00b\ud800", metadata={"k\x00": ["v\x00"]})
        assert (memory.content, memory.metadata, memory.cleaned) == ("ab", {"k": ["v"]}, True)

    def test_of_line_ends_is_not(self) -> None:
        memory = MemoryWrite(content="a\r\nb")
        assert (memory.content, memory.cleaned) == ("a\nb", False)

    def test_is_for_every_string(self) -> None:
        request = SearchRequest(query="a\x00", filters={"title": "b\x00", "tags": ["c\x00"]})  # type: ignore[arg-type]
        assert (request.query, request.filters.title, request.filters.tags) == ("a", "b", ["c"])

    def test_ends_at_a_depth(self) -> None:
        nested: Any = "x"
        for _ in range(100_000):
            nested = [nested]
        assert "nested deeper" in errors(MemoryWrite, content="x", metadata={"x": nested})[""]

    @given(st.recursive(st.text(st.characters()), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
    @settings(max_examples=50)
    def test_leaves_nothing_that_cannot_be_stored(self, value: Any) -> None:
        cleaned, _ = clean_deeply(value)
        assert "\\u0000" not in repr(cleaned)
        str(cleaned).encode()
        assert clean_deeply(cleaned) == (cleaned, False)


class TestSearch:
    """S10: a defined answer for every query."""

    @pytest.mark.parametrize("query", ["ab", "the of and", "?!…", "😀", "x" * 100_000, "漢字"])
    def test_taken(self, query: str) -> None:
        assert SearchRequest(query=query).query == query

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"query": ""}, "query"),
            ({"query": " "}, "query"),
            ({"query": "\x00"}, "query"),
            ({"query": "x" * 100_001}, "query"),
            ({"query": None}, "query"),
            ({"query": ["x"]}, "query"),
            ({}, "query"),
            ({"query": "x", "k": 0}, "k"),
            ({"query": "x", "k": 101}, "k"),
            ({"query": "x", "k": "10"}, "k"),
            ({"query": "x", "k": 10.0}, "k"),
            ({"query": "x", "k": True}, "k"),
            ({"query": "x", "explain": "no"}, "explain"),
            ({"query": "x", "filters": []}, "filters"),
            ({"query": "x", "filters": {"kind": "memo"}}, "filters.kind"),
            ({"query": "x", "filters": {"user": "me"}}, "filters.user"),
            ({"query": "x", "filters": {"created_after": "2026-01-01"}}, "filters.created_after"),
            ({"query": "x", "filters": {"priority_min": 2}}, "filters.priority_min"),
            ({"query": "x", "filters": {"project": ["a"] * 51}}, "filters.project"),
            *(({"query": "x", "as_of": as_of}, "as_of") for as_of in (0, 1e300, True, "", "now", "2026-01-01", [], {})),
            ({"query": "x", "as_of": "2026-01-31T12:00:00"}, "as_of"),
            ({"query": "x", "as_of": "\x00"}, "as_of"),
            ({"query": "x", "as_of": "10000-01-01T00:00:00Z"}, "as_of"),
            ({"query": "x", "as_of": "0001-01-01T00:00:00+02:00"}, "as_of"),
            *(({"query": "x", "legs": legs}, "legs") for legs in ([], "keyword", ["meaning"], [None], [1], {}, 1)),
            ({"query": "x", "legs": ["keyword", "keyword"]}, "legs"),
            ({"query": "x", "legs": ["keyword", "vector", "keyword"]}, "legs"),
            *(({"query": "x", "level": level}, "level") for level in ("chunks", "", 1, None, [], "item\x00s")),
            *(({"cursor": cursor}, "cursor") for cursor in ("", "x" * 101, 1, [], {}, True, "\x00")),
            *(({"cursor": "x", name: value}, name) for name, value in RANKING.items()),
            *(
                ({"query": "x", "filters": {name: value}}, f"filters.{name}")
                for name, values in WRONG_FILTERS.items()
                for value in values
            ),
        ],
    )
    def test_refused(self, fields: dict[str, Any], field: str) -> None:
        assert all(name.startswith(field) for name in errors(SearchRequest, **fields))

    def test_one_complaint_about_a_wrong_cursor(self) -> None:
        assert errors(SearchRequest, cursor="").keys() == {"cursor"}
        assert errors(SearchRequest) == {"query": "required"}

    def test_a_cursor_needs_no_query_and_allows_one(self) -> None:
        for query in (None, "x"):
            request = SearchRequest(cursor="x", query=query, k=5)
            assert (request.cursor, request.query, request.k) == ("x", query, 5)
        # what is null was not given
        assert SearchRequest(cursor="x", as_of=None, legs=None, why_not=None).cursor == "x"

    def test_every_new_field_in_utc_and_clean(self) -> None:
        request = SearchRequest(
            query="x",
            as_of="2026-01-31T00:30:00+02:00",  # type: ignore[arg-type]
            legs=["vector", "keyword"],
            level="chunk",
            filters={  # type: ignore[arg-type]
                "folder": str(UUID(int=7)),
                "mime_type": "Text/Markdown",
                "extension": [".MD", "tar.GZ"],
                "metadata": {"a\x00": {"b": [None, 1.5, "c\x00"]}},
                "updated_after": "2026-01-31T00:30:00-02:00",
                "any": [{"type": "a", "tags": []}, {}],
            },
        )
        told = request.model_dump(mode="json")
        assert (told["as_of"], told["legs"], told["level"]) == ("2026-01-30T22:30:00Z", ["vector", "keyword"], "chunk")
        assert request.filters.model_dump(mode="json", exclude_none=True) == {
            "folder": str(UUID(int=7)),
            "mime_type": "text/markdown",
            "extension": ["md", "tar.gz"],
            "metadata": {"a": {"b": [None, 1.5, "c"]}},
            "updated_after": "2026-01-31T02:30:00Z",
            "any": [{"type": "a", "tags": []}, {}],
        }
        null = SearchRequest(query="x", filters={"metadata": {"a": None}}).filters  # type: ignore[arg-type]
        assert null.model_dump(mode="json", exclude_none=True) == {"metadata": {"a": None}}

    def test_filter_is_one_or_any_of_several(self) -> None:
        filters = SearchRequest(query="x", filters={"kind": ["memory", "page"], "type": "note"}).filters  # type: ignore[arg-type]
        assert filters.model_dump(exclude_none=True) == {"kind": ["memory", "page"], "type": "note"}


class TestUpdate:
    def test_keeps_what_is_left_out_and_clears_what_is_null(self) -> None:
        assert ItemUpdate(version=1, title=None, tags=["a"]).changes() == {"title": None, "tags": ["a"]}

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"version": 1}, "name at least one field"),
            ({"title": "x"}, "required"),
            ({"version": 0, "title": "x"}, "must be at least 1"),
            ({"version": "1", "title": "x"}, "must be a whole number"),
            ({"version": 1, "content": None}, "must not be null"),
            ({"version": 1, "tags": None}, "must not be null"),
            ({"version": 1, "evergreen": None}, "must not be null"),
            ({"version": 1, "evergreen": 1}, "must be true or false"),
            ({"version": 1, "content": " "}, "must not be blank"),
            ({"version": 1, "private": True}, "unknown field"),
        ],
    )
    def test_refused(self, fields: dict[str, Any], says: str) -> None:
        assert says in next(iter(errors(ItemUpdate, **fields).values()))


class TestOthers:
    @pytest.mark.parametrize("memories", [[], [{}] * 501, {}, None, "x"])
    def test_batch_refused(self, memories: Any) -> None:
        assert errors(BatchWrite, memories=memories).keys() == {"memories"}

    @pytest.mark.parametrize("budget", [0, 200_001, "4", 1.5, None])
    def test_budget_refused(self, budget: Any) -> None:
        assert errors(BootstrapRequest, budget_tokens=budget).keys() == {"budget_tokens"}

    @pytest.mark.parametrize("slug", ["", "Acme", "-a", "a b", "a" * 64, "ä"])
    def test_slug_refused(self, slug: str) -> None:
        assert errors(OrgCreate, slug=slug, name="x", owner={"email": "a@b.c"}).keys() == {"slug"}

    @pytest.mark.parametrize("fields", [{}, {"member": "a", "agent": "b", "client": "c"}, {"member": "a"}])
    def test_scope_is_of_one_for_one(self, fields: dict[str, Any]) -> None:
        assert "name either" in errors(ScopeGrant, **fields)[""]

    def test_key_belongs_to_someone(self) -> None:
        assert errors(KeyCreate, name="x") == {"": "name a member, an agent, or both"}

    def test_no_message_repeats_a_value(self) -> None:
        secret = "hunter2"
        for model in Request.__subclasses__():
            fields = {name: {secret: secret} for name in [*model.model_fields, "unknown"]}
            assert secret not in "".join(errors(model, **fields).values())


class TestCall:
    def test_same_request_has_the_same_hash(self) -> None:
        one, two = Call(request_id="1", idempotency_key="k"), Call(request_id="2", idempotency_key="k")
        assert one.idempotency("write", {"a": 1, "b": 2}) == two.idempotency("write", {"b": 2, "a": 1})

    @pytest.mark.parametrize(("operation", "request_"), [("erase", {"a": 1}), ("write", {"a": 2}), ("write", {})])
    def test_another_request_has_another(self, operation: str, request_: dict[str, Any]) -> None:
        call = Call(request_id="1", idempotency_key="k")
        hashed = call.idempotency("write", {"a": 1})["request_hash"]
        assert call.idempotency(operation, request_)["request_hash"] != hashed

    def test_without_a_key_the_request_is_its_own(self) -> None:
        assert Call(request_id="7").idempotency("write", {})["key"] == "request:7"
