"""What a caller is told of a wrong value: by the path that they wrote, once, in plain words, with the bound."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from almagest.edge.app import App
from almagest.handlers import bootstrap, search, write
from almagest.models.base import Empty, Request
from almagest.models.errors import errors_of
from almagest.models.identity import KeyCreate, OrgCreate
from almagest.models.search import SearchRequest
from almagest.models.write import BatchWrite, ItemUpdate, MemoryWrite
from tests.edge import FakeRpc, event, runtime, send

PATH = re.compile(r"([a-z_]+)((?:\.[a-z_]+|\[\d+\])*)")
# How pydantic puts it, in locations and in messages.
INTERNALS = re.compile(
    r"function-|constrained|literal\[|list\[|nullable|\binput\b|\bvalid\b|pattern|validation|\bValue\b", re.I
)
WRONG: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 2**40, 10**30, "", " ", "\x00", "NOT A NAME!", "x" * 2000, [], {}, [None], [1, "", {}],
    ["a", 5, "b", "NOT A NAME!"], ["a"] * 60, ["x" * 2000], [["a"]], [[[1]]], {"a": 1},
    {"unknown": 1}, {"id": 5}, {"id": "c", "position": "x"}, {"kind": ["x", 1]}, [{"type": ["a", 5]}, {"unknown": 1}],
    {"any": [{"kind": "x"}, {"type": ["a", 5]}, 7]}, "2026-01-31T12:00:00",
)  # fmt: skip


def _models(base: type[BaseModel] = Request) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)


MODELS = sorted({*_models(), BatchWrite}, key=lambda model: model.__name__)


def told(model: type[BaseModel], sent: dict[str, Any]) -> dict[str, str]:
    """Field -> message; nothing where the model takes it."""
    try:
        model.model_validate(sent)
    except ValidationError as error:
        errors = errors_of(error, sent)
        fields = {each["field"]: each["message"] for each in errors}
        assert len(fields) == len(errors), errors
        return fields
    return {}


def written(path: str, sent: Any) -> bool:
    """Whether a path leads to something in a request, or to a name that could be there."""
    steps = [int(index) if index else name for name, index in re.findall(r"([a-z_]+)|\[(\d+)\]", path)]
    for number, step in enumerate(steps, start=1):
        if isinstance(step, int) != isinstance(sent, list):
            return False
        if isinstance(sent, dict) and step not in sent:
            return number == len(steps)
        sent = sent[step]
    return True


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_wrong_value_of_every_field_is_told_by_its_path_in_plain_words(model: type[BaseModel]) -> None:
    for field in [*model.model_fields, "unknown"]:
        for value in WRONG:
            sent = {field: value}
            for path, message in told(model, sent).items():
                assert not path or PATH.fullmatch(path), (sent, path)
                assert written(path, sent), (sent, path)
                assert not INTERNALS.search(path + message), (sent, path, message)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_one_wrong_value_is_told_once(model: type[BaseModel]) -> None:
    for field in model.model_fields:
        for value in WRONG:
            if not isinstance(value, list | dict):
                about = [path for path in told(model, {field: value}) if path.startswith(field)]
                assert about in ([], [field]), (field, value, about)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_field_that_is_unknown_is_named(model: type[BaseModel]) -> None:
    assert told(model, {"colour": "red"})["colour"] == "unknown field"


STRING = "must be a string"
SLUG = "must be 1 to 63 lower-case letters, digits, - and _, of which the first is a letter or a digit"
MIME_TYPE = "must be a MIME type such as text/plain, of at most 100 characters on each side"
KINDS = "must be 'memory', 'page', 'skill', 'file', 'source' or 'fact'"


@pytest.mark.parametrize(
    ("filters", "errors"),
    [
        ({"type": 5}, {"type": "must be a string, or a list"}),
        ({"type": {}}, {"type": "must be a string, or a list"}),
        ({"type": ""}, {"type": "must have at least 1 character"}),
        ({"type": "x" * 101}, {"type": "must have at most 100 characters"}),
        ({"type": ["a", "b", 5]}, {"type[2]": "must be a string"}),
        ({"type": ["a", " ", None]}, {"type[1]": "must not be blank", "type[2]": "must be a string"}),
        ({"type": [["a"]]}, {"type[0]": "must be a string"}),
        ({"type": ["a"] * 51}, {"type": "must have at most 50 entries"}),
        ({"kind": "memo"}, {"kind": KINDS}),
        ({"kind": ["memory", "memo"]}, {"kind[1]": KINDS}),
        ({"kind": 5}, {"kind": f"{KINDS}, or a list"}),
        ({"kind": ["memory"] * 51}, {"kind": "must have at most 50 entries"}),
        ({"folder": "x"}, {"folder": "must be a UUID, such as 123e4567-e89b-12d3-a456-426614174000"}),
        ({"folder": [1]}, {"folder[0]": "must be a string that holds a UUID"}),
        ({"project": "A B"}, {"project": SLUG}),
        ({"project": ["a", "A B"]}, {"project[1]": SLUG}),
        ({"agent_name": ["x" * 201]}, {"agent_name[0]": "must have at most 200 characters"}),
        ({"mime_type": "text"}, {"mime_type": MIME_TYPE}),
        ({"tags": "x"}, {"tags": "must be a list"}),
        ({"tags": ["a", "", "x" * 101]}, {
            "tags[1]": "must have at least 1 character", "tags[2]": "must have at most 100 characters",
        }),
        ({"title": "x" * 501}, {"title": "must have at most 500 characters"}),
        ({"source_ref": ["\U0001f600" * 400]}, {"source_ref[0]": "must not be larger than 1500 bytes as UTF-8"}),
        ({"priority_min": 2}, {"priority_min": "must be at most 1"}),
        ({"priority_min": "much"}, {"priority_min": "must be a number"}),
        ({"any": [{}, {"kind": "memo"}, {"type": ["a", 5]}, 7]}, {
            "any[1].kind": KINDS, "any[2].type[1]": "must be a string", "any[3]": "must be a JSON object",
        }),
        ({"any": [{"any": []}]}, {"any[0].any": "unknown field"}),
        ({"an\x00y": [{"colour": 1}]}, {"any[0].colour": "unknown field"}),
    ],
)  # fmt: skip
def test_words_for_filters(filters: dict[str, Any], errors: dict[str, str]) -> None:
    assert told(SearchRequest, {"query": "x", "filters": filters}) == {
        f"filters.{field}": message for field, message in errors.items()
    }


@pytest.mark.parametrize(
    ("model", "sent", "errors"),
    [
        (SearchRequest, {}, {"query": "required"}),
        (SearchRequest, {"query": "x" * 100_001}, {"query": "must have at most 100,000 characters"}),
        (SearchRequest, {"query": "x", "k": 0}, {"k": "must be at least 1"}),
        (SearchRequest, {"query": "x", "k": 101}, {"k": "must be at most 100"}),
        (SearchRequest, {"query": "x", "k": 1.5}, {"k": "must be a whole number"}),
        (SearchRequest, {"query": "x", "explain": 1}, {"explain": "must be true or false"}),
        (SearchRequest, {"query": "x", "level": "all"}, {"level": "must be 'item' or 'chunk'"}),
        (SearchRequest, {"query": "x", "legs": ["x"]}, {"legs[0]": "must be 'keyword' or 'vector'"}),
        (MemoryWrite, {"content": "x", "conversation": {"id": "c"}}, {"conversation.position": "required"}),
        (MemoryWrite, {"content": None}, {"content": "must be a string"}),
        (MemoryWrite, {"content": "x", "metadata": []}, {"metadata": "must be a JSON object"}),
        (ItemUpdate, {"version": 1, "tags": None}, {"tags": "must not be null; leave it out to keep it as it is"}),
        (BatchWrite, {"memories": []}, {"memories": "must have at least 1 entry"}),
        (BatchWrite, {"memories": [1] * 501}, {"memories": "must have at most 500 entries"}),
        (OrgCreate, {"slug": "a", "name": "a", "owner": {"email": "x"}}, {"owner.email": "must be an e-mail address"}),
        (KeyCreate, {"name": "x"}, {"": "name a member, an agent, or both"}),
        (Empty, {"x": 1}, {"x": "unknown field"}),
    ],
)
def test_words(model: type[BaseModel], sent: dict[str, Any], errors: dict[str, str]) -> None:
    assert told(model, sent) == errors


@pytest.mark.parametrize(
    ("app", "path", "sent", "errors"),
    [
        (search.app, "/v1/search", {"query": "x", "filters": {"tags_any": [5]}}, {"filters.tags_any[0]": STRING}),
        (search.app, "/v1/search", {"query": "x", "filters": {"type": ["a", 5]}}, {"filters.type[1]": STRING}),
        (search.app, "/v1/search", {"query": "x", "filters": {"type": 5}}, {"filters.type": f"{STRING}, or a list"}),
        (search.app, "/v1/search", [], {"": "must be a JSON object"}),
        (write.app, "/v1/write/memories", {"content": "x", "tags": [1]}, {"tags[0]": "must be a string"}),
        (bootstrap.app, "/v1/bootstrap", {"budget_tokens": 0}, {"budget_tokens": "must be at least 1"}),
    ],
)  # fmt: skip
def test_over_http(app: App, path: str, sent: Any, errors: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "connect", lambda: runtime(FakeRpc()))
    reply = send(app, event("POST", path, sent))
    assert reply.status == 422
    assert {each["field"]: each["message"] for each in reply.body["errors"]} == errors


@pytest.mark.parametrize(
    ("query", "errors"),
    [
        ({"limit": "101"}, {"limit": "must be at most 100"}),
        ({"limit": "x", "cursor": "x"}, {
            "limit": "must be a whole number", "cursor": "must be the next_cursor of the page before",
        }),
        ({"around": "9" * 5000}, {"around": "must be a whole number of fewer digits"}),
    ],
)  # fmt: skip
def test_in_a_query_string(query: dict[str, str], errors: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search.app, "connect", lambda: runtime(FakeRpc()))
    path = "/v1/search/items/00000000-0000-0000-0000-000000000000/chunks"
    reply = send(search.app, event("GET", path, query=query))
    assert reply.status == 422
    assert {each["field"]: each["message"] for each in reply.body["errors"]} == errors


def test_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write.app, "connect", lambda: runtime(FakeRpc()))
    reply = send(
        write.app, event("POST", "/v1/write/memories/batch", {"memories": [{"content": "x", "tags": ["a", 5]}]})
    )
    assert [entry["problem"]["errors"] for entry in json.loads(reply.text)["results"]] == [
        [{"field": "tags[1]", "message": "must be a string"}]
    ]
