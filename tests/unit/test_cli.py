"""The command line without a stack: its help, its errors, and what it imports."""

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import typer
import typer.core
from typer.main import get_command

from almagest.cli import app, explain, items, main, output, profiles, results, stack
from almagest.cli.context import read_settings
from almagest.models.bootstrap import DEFAULT_BUDGET
from almagest.models.fields import INT32_MAX
from almagest.models.search import DEFAULT_K, MAX_PAGE, MAX_REACH, ChunkPage, Filters, SearchResponse, SearchResult
from almagest.models.traces import Trace, TraceCandidate

Command = Any  # typer carries a copy of click's class, which has no public name
HEAVY = {"fastembed", "httpx", "numpy", "onnxruntime", "psycopg", "pydantic", "supabase"}


def _commands() -> Iterator[tuple[str, Command]]:
    waiting: list[tuple[str, Command]] = [("almagest", get_command(app))]
    while waiting:
        name, command = waiting.pop()
        yield name, command
        if isinstance(command, typer.core.TyperGroup):
            waiting += [(f"{name} {child}", found) for child, found in command.commands.items()]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without a stack in it."""
    monkeypatch.chdir(tmp_path)


def _fails(*arguments: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 1


@pytest.mark.parametrize(("name", "command"), [pytest.param(*pair, id=pair[0]) for pair in _commands()])
def test_every_command_and_every_parameter_has_help(name: str, command: Command) -> None:
    assert command.help, name
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{name}: {parameter.name} has no help"


def test_the_help_of_search_names_every_filter_and_the_defaults_are_the_models_own() -> None:
    assert items.FILTERS.split(", ") == list(Filters.model_fields)
    assert inspect.signature(items.search).parameters["k"].default == DEFAULT_K
    assert inspect.signature(items.bootstrap).parameters["budget"].default == DEFAULT_BUDGET


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from almagest.cli import main\n"
        "try: main(['--help'])\n"
        f"except SystemExit: print(*sorted({HEAVY!r} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []
    assert "remember" in done.stdout


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("almagest 0.")


@pytest.mark.parametrize("arguments", [("search", "x"), ("org", "list"), ("migrate",)])
def test_without_a_stack_it_says_how_to_start_one(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    _fails(*arguments)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Error (no_stack): ")
    assert err.count("\n") == 1
    assert "almagest stack start" in err


def test_a_stack_that_does_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".almagest").mkdir()
    state = {
        "supabase_url": "http://127.0.0.1:1",
        "supabase_key": "sb_secret_x",
        "database_url": "postgresql://postgres@127.0.0.1:1/postgres",
        "key": "alm_x",
    }
    (tmp_path / ".almagest" / "stack.json").write_text(json.dumps(state))

    _fails("search", "x")
    assert "Error (database_unavailable): No answer from the stack at http://127.0.0.1:1" in (
        err := capsys.readouterr().err
    )
    assert "almagest stack start" in err
    _fails("migrate")
    assert "Error (migration_failed): cannot reach Postgres" in capsys.readouterr().err


def test_a_project_in_the_environment_replaces_the_stack_and_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = {"supabase_url": "http://local", "supabase_key": "sb_secret_x", "database_url": "postgres://", "key": "alm"}
    (tmp_path / "stack.json").write_text(json.dumps(state))
    monkeypatch.setenv("ALMAGEST_DIR", str(tmp_path))
    local = read_settings()
    assert (local.supabase_url, local.api_key and local.api_key.get_secret_value()) == ("http://local", "alm")

    monkeypatch.setenv("SUPABASE_URL", "https://ref.supabase.co")
    remote = read_settings()
    assert (remote.supabase_url, remote.supabase_key, remote.api_key) == ("https://ref.supabase.co", None, None)
    _fails("org", "list")
    assert "SUPABASE_SECRET_KEY is not" in capsys.readouterr().err
    monkeypatch.setenv("SUPABASE_SECRET_KEY", "sb_secret_y")
    _fails("search", "x")
    assert "Error (no_key)" in capsys.readouterr().err


def test_half_a_project_beside_a_stack_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or an org would be made in the one, and looked for in the other."""
    (tmp_path / ".almagest").mkdir()
    url = "postgresql://postgres@127.0.0.1:1/postgres"
    state = {"supabase_url": "http://127.0.0.1:1", "supabase_key": "sb_secret_x", "database_url": url, "key": "alm_x"}
    (tmp_path / ".almagest" / "stack.json").write_text(json.dumps(state))
    monkeypatch.setenv("DATABASE_URL", "postgresql://postgres@127.0.0.1:2/postgres")
    for command in (("org", "list"), ("search", "x")):
        _fails(*command)
        err = capsys.readouterr().err
        assert err.startswith("Error (invalid_settings): DATABASE_URL is set, SUPABASE_URL is not")
        assert "postgresql" not in err
    monkeypatch.setenv("DATABASE_URL", url)
    _fails("org", "list")
    assert "No answer from the stack" in capsys.readouterr().err


def test_a_project_that_does_not_answer_is_not_to_be_started_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SUPABASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("SUPABASE_SECRET_KEY", "sb_secret_x")
    _fails("org", "list")
    assert "No answer from http://127.0.0.1:1: is SUPABASE_URL right" in (err := capsys.readouterr().err)
    assert "stack start" not in err


def test_a_stack_over_a_real_project_has_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = {"supabase_url": "http://127.0.0.1:1", "supabase_key": "k", "database_url": "postgres://", "key": None}
    (tmp_path / "stack.json").write_text(json.dumps(state))
    monkeypatch.setenv("ALMAGEST_DIR", str(tmp_path))
    _fails("search", "x")
    assert "Error (no_key): Set ALMAGEST_KEY" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ALMAGEST_PORT", "70000", "must be at most 65,535"),
        ("SUPABASE_URL", "ref.supabase.co", "must be a URL such as https://"),
        ("SUPABASE_URL", "https://", "must be a URL such as https://"),
        ("SUPABASE_SECRET_KEY", "sb_secret_ü", "must be printable ASCII"),
    ],
)
def test_an_impossible_setting_is_named(
    name: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SUPABASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("SUPABASE_SECRET_KEY", "sb_secret_x")
    monkeypatch.setenv(name, value)
    _fails("org", "list")
    assert "Error (invalid_settings)" in (err := capsys.readouterr().err)
    assert name in err
    assert says in err
    assert "ü" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("search", " "), "query: must not be blank"),
        (("search", "x", "-k", "101"), "k: must be at most 100"),
        (("search", "x", "--filter", "colour=red"), "filters.colour: unknown field"),
        (("search", "x", "--filter", "priority_min=much"), "filters.priority_min: "),
        (("remember", "x", "--importance", "2"), "importance: "),
        (("remember", "x", "--metadata", "[1]"), "metadata: "),
    ],
)
def test_a_wrong_value_is_named_without_asking_the_stack(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _fails(*arguments)
    err = capsys.readouterr().err
    assert err.startswith("Error (invalid_request): ")
    assert message in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("search", "x", "--filter", "type"),
        ("remember", "x", "--metadata", "{"),
        ("remember", "x", "--conversation", "c"),
        ("get", "not-an-id"),
        ("get", str(UUID(int=1)), "--reach", "2"),
        ("get", str(UUID(int=1)), "--neighbours", "--reach", str(MAX_REACH + 1)),
        ("get", str(UUID(int=1)), "--around", str(INT32_MAX + 1)),
        ("get", str(UUID(int=1)), "--around", "-1"),
        ("search", "x", "-k", "ten"),
        ("search", "x", "--why-not", "it"),
        ("search", "x", "--filter", "title=a", "--filter", "title=b"),
        ("trace", "x"),
        ("bootstrap", "--budget", "much"),
        ("pin", str(UUID(int=1)), "--position", "first"),
        ("remember", "x", "--importance", "much"),
        ("key", "revoke", "x"),
        ("key", "revoke", "alm_short"),
        ("key", "rotate", "x"),
        ("key", "create", "--name", "x", "--rate", "fast"),
        ("key", "limit", str(UUID(int=1)), "--daily-quota", "many"),
        ("org", "create", "a", "--owner-email", "a@b.c", "--owner-id", "x"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    out, err = capsys.readouterr()
    assert (caught.value.code, out) == (2, "")
    assert "Invalid value for" in err
    assert "nput should" not in err


def test_bounds_of_options_are_those_of_the_requests(capsys: pytest.CaptureFixture[str]) -> None:
    for option, most in (("--reach", MAX_REACH), ("--around", INT32_MAX)):
        _fails("get", str(UUID(int=1)), "--around", "0", option, str(most))
        assert "Error (no_stack)" in capsys.readouterr().err


def test_chunks_are_asked_for_by_pages_that_the_api_allows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from almagest.operations import search

    asked: list[tuple[str | None, int]] = []

    def page(runtime: Any, caller: Any, item: UUID, cursor: str | None, limit: int) -> ChunkPage:
        asked.append((cursor, limit))
        text = {"position": len(asked), "start": 0, "end": 1, "text": "x"}
        return ChunkPage.model_validate({"chunks": [text], "next_cursor": "1" if cursor is None else None})

    monkeypatch.setattr(items, "open_runtime", nullcontext)
    monkeypatch.setattr(items, "current_caller", lambda runtime: None)
    monkeypatch.setattr(search, "get_chunks", page)
    with pytest.raises(SystemExit) as caught:
        main(["get", str(uuid4()), "--chunks", "--json"])
    assert caught.value.code == 0
    assert asked == [(None, MAX_PAGE), ("1", MAX_PAGE)]
    assert [chunk["position"] for chunk in json.loads(capsys.readouterr().out)["chunks"]] == [1, 2]


def test_filters_are_parsed_into_fields() -> None:
    assert items.parse_filters(["tags=a,b", "type=decision", "priority_min=0.5", "source_ref=a=b"]) == {
        "tags": ["a", "b"],
        "type": "decision",
        "priority_min": 0.5,
        "source_ref": "a=b",
    }


class TestProfiles:
    def test_knobs_are_turned_and_others_stay(self) -> None:
        own = {"high": 0.9, "modes": {"lexical": {"high": 0.8}}}
        pairs = ["fusion=rrf", "exhaustive=true", "candidates=50", "modes.lexical.standard=0.2", "modes.vector.high=1"]
        assert profiles.turned(own, pairs) == {
            "high": 0.9, "fusion": "rrf", "exhaustive": True, "candidates": 50,
            "modes": {"lexical": {"high": 0.8, "standard": 0.2}, "vector": {"high": 1}},
        }  # fmt: skip
        assert own == {"high": 0.9, "modes": {"lexical": {"high": 0.8}}}

    def test_an_empty_value_takes_a_knob_out(self) -> None:
        own = {"high": 0.9, "modes": {"lexical": {"high": 0.8}}}
        assert profiles.turned(own, ["high=", "standard="]) == {"modes": {"lexical": {"high": 0.8}}}
        assert profiles.turned(own, ["modes.lexical.high=", "modes.vector.high="]) == {"high": 0.9}

    @pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "abc", "1.0.0"])
    def test_what_is_no_json_is_text_for_the_database_to_refuse(self, value: str) -> None:
        assert profiles.turned({}, [f"high={value}"]) == {"high": value}

    def test_what_is_no_pair_is_refused(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            main(["profile", "set", "user_search"])
        assert caught.value.code == 2
        with pytest.raises(typer.BadParameter):
            profiles.turned({}, ["high"])


KNOBS = {"fusion": "weighted", "keyword_weight": 0.6, "vector_weight": 0.2, "metadata_weight": 0.0}


def candidate(**fields: Any) -> TraceCandidate:
    return TraceCandidate.model_validate({"item": uuid4(), **fields})


class TestExplain:
    def test_the_parts_of_a_score_add_up(self) -> None:
        scored = candidate(keyword=0.4, vector=0.8, hybrid=0.55, boosts={"author": 0.05})
        parts = explain.shares(scored, KNOBS)
        assert parts == pytest.approx({"keyword": 0.3, "vector": 0.2, "author": 0.05})
        assert list(parts) == ["keyword", "vector", "author"]

    def test_words_that_were_capped_have_what_is_left(self) -> None:
        scored = candidate(keyword=0.9, vector=0.1, hybrid=0.325)
        assert explain.shares(scored, KNOBS) == pytest.approx({"keyword": 0.3, "vector": 0.025})

    def test_a_leg_that_did_not_run_has_no_weight(self) -> None:
        assert explain.shares(candidate(keyword=0.4, hybrid=0.4), KNOBS) == pytest.approx({"keyword": 0.4})
        assert explain.shares(candidate(vector=0.8, hybrid=0.8), KNOBS) == pytest.approx({"vector": 0.8})

    def test_a_turn_that_only_asks_is_told_beside_the_sum(self) -> None:
        scored = candidate(keyword=0.4, vector=0.8, hybrid=0.45, boosts={"question_turn": 0.9})
        assert explain.shares(scored, KNOBS) == pytest.approx({"keyword": 0.3, "vector": 0.2})

    def test_ranks_are_not_taken_apart(self) -> None:
        scored = candidate(keyword=0.4, vector=0.8, hybrid=0.7, boosts={"date": 0.1})
        assert explain.shares(scored, {**KNOBS, "fusion": "rrf"}) == pytest.approx({"ranks": 0.6, "date": 0.1})

    def test_each_candidate_has_its_fate(self) -> None:
        ranks = (1, 2, None, 3, 4)
        listed = [
            candidate(title=f"Item {number}", hybrid=0.5, final=0.4, keyword=0.5, rank=rank)
            for number, rank in enumerate(ranks)
        ]
        listed[2] = listed[2].model_copy(update={"cut": "floor"})
        trace = Trace.model_validate(
            {
                "id": uuid4(), "created_at": "2026-11-30T12:00:00Z", "purpose": "search", "profile": "user_search",
                "mode": "lexical", "knobs": KNOBS, "found": 5, "candidates": listed, "mmr": [], "hidden": 0,
                "results": [{"item": listed[0].item}, {"item": listed[3].item}],
            }
        )  # fmt: skip
        rows = list(explain.candidate_rows(trace))
        assert [(row["result"], row["fate"]) for row in rows] == [
            (1, "answer"),
            (None, "ranked 2, resembles a result"),
            (None, "floor"),
            (2, "answer, ranked 3"),
            (None, "ranked 4"),
        ]
        assert rows[0]["fused"] == "0.500 = 0.500 keyword"

    def test_slices_of_one_item_have_each_their_own_place(self) -> None:
        one, other = uuid4(), uuid4()
        items = [one, other, one, one, other]
        listed = [
            candidate(chunk=number, keyword=0.5, hybrid=0.5, rank=number).model_copy(update={"item": item})
            for number, item in enumerate(items, start=1)
        ]
        listed[4] = listed[4].model_copy(update={"rank": None, "cut": "duplicate"})
        trace = Trace.model_validate(
            {
                "id": uuid4(), "created_at": "2026-11-30T12:00:00Z", "purpose": "search", "profile": "user_search",
                "mode": "lexical", "knobs": KNOBS, "found": 5, "candidates": listed, "mmr": [], "hidden": 0,
                "results": [{"item": item} for item in items[:3]],
            }
        )  # fmt: skip
        assert [(row["result"], row["fate"]) for row in explain.candidate_rows(trace)] == [
            (1, "answer"), (2, "answer"), (3, "answer"), (None, "ranked 4"), (None, "duplicate"),
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("fields", "knobs", "told"),
        [
            (
                {"keyword": 0.4, "vector": 0.8, "hybrid": 1, "boosts": {"author": 1}}, {},
                "1.000 = 0.300 keyword + 0.200 vector + 1.000 author, at most 1",
            ),
            (
                {"keyword": 0.4, "vector": 0.8, "hybrid": 1, "boosts": {"author": 0.5}}, {},
                "1.000 = 0.300 keyword + 0.200 vector + 0.500 author",
            ),
            (
                {"keyword": 0.8, "vector": 0.2, "hybrid": 1, "boosts": {"author": 1}},
                {"vector_threshold": 0.25, "keyword_only_cap": 0.3},
                "1.000 = 0.225 keyword + 0.050 vector + 1.000 author, at most 1",
            ),
            (
                {"keyword": 0.8, "vector": 0.2, "hybrid": 1, "boosts": {"identifier": 1}},
                {"vector_threshold": 0.25, "keyword_only_cap": 0.3},
                "1.000 = 0.600 keyword + 0.050 vector + 1.000 identifier, at most 1",
            ),
            (
                {"keyword": 1, "hybrid": 1, "boosts": {"author": 1, "question_turn": 0.9}}, {},
                "1.000 = 1.000 keyword + 1.000 author, × 0.9 since it only asks, at most 1",
            ),
            ({"vector": 0.8, "hybrid": 1, "boosts": {"date": 1}}, {}, "1.000 = 0.800 vector + 1.000 date, at most 1"),
            (
                {"keyword": 0.4, "vector": 0.8, "hybrid": 1, "boosts": {"author": 1}}, {"fusion": "rrf"},
                "1.000 = ranks + 1.000 author, at most 1",
            ),
            ({"keyword": 0.4, "vector": 0.8, "hybrid": 1}, {"fusion": "rrf"}, "1.000 = 1.000 ranks"),
            ({"keyword": 1, "vector": 1, "hybrid": 1}, {}, "1.000 = 0.750 keyword + 0.250 vector"),
        ],
    )  # fmt: skip
    def test_a_sum_that_ends_at_1_says_so(self, fields: dict[str, Any], knobs: dict[str, Any], told: str) -> None:
        trace = Trace.model_validate(
            {
                "id": uuid4(), "created_at": "2026-11-30T12:00:00Z", "purpose": "search", "profile": "user_search",
                "mode": "hybrid", "knobs": {**KNOBS, **knobs}, "found": 1, "candidates": [candidate(**fields, rank=1)],
                "mmr": [], "hidden": 0, "results": [],
            }
        )  # fmt: skip
        assert [row["fused"] for row in explain.candidate_rows(trace)] == [told]

    def test_stages_are_told_in_their_order(self) -> None:
        rows = list(explain.stage_rows({"rank": 2.5, "read": 0.5, "terms": 0.5, "keyword": 2.0}))
        assert [(row["stage"], row["ms"], row["after"]) for row in rows] == [
            ("terms", "0.50", "0.50"), ("keyword", "2.00", "2.50"), ("rank", "2.50", "5.00"), ("read", "0.50", "5.50"),
        ]  # fmt: skip


def result(**fields: Any) -> dict[str, Any]:
    return {
        "id": str(uuid4()), "kind": "memory", "snippet": "a [red] zebra", "created_at": "2026-01-01T00:00:00Z",
        "relevance": "high", "scores": {"final": 1, "keyword": 0.5}, **fields,
    }  # fmt: skip


def response(*found: dict[str, Any], **fields: Any) -> SearchResponse:
    return SearchResponse.model_validate({"mode": "hybrid", "results": found, "trace_id": str(uuid4()), **fields})


class TestResults:
    def test_the_words_of_the_query_are_bold_in_a_snippet_of_one_line(self) -> None:
        snippet = "# Zoo\r\n\n  a [red]\t\nzebra \n"
        marks = [[snippet.index("[red]"), snippet.index("[red]") + 5], [snippet.index("zebra"), snippet.index(" \n")]]
        text = results.marked(SearchResult.model_validate(result(snippet=snippet, marks=[*marks])))
        assert text.plain == "# Zoo a [red] zebra"
        assert [(text.plain[span.start : span.end], span.style) for span in text.spans] == [
            ("[red]", "bold"),
            ("zebra", "bold"),
        ]

    def test_a_result_takes_as_many_lines_as_it_has_scores(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(output, "WIDTH_WITHOUT_TERMINAL", 80)
        scores = {"final": 0.4, "keyword": 0.5, "vector": 0.6, "hybrid": 0.7, "strength": 0.8}
        long = result(snippet="word\n\nafter word\n" * 25, title="title\n" * 30, source_ref="x" * 200, scores=scores)
        results.print_results(response(long))
        lines = [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()][2:]
        assert [line[:28].split() for line in lines] == [
            ["0.400", "keyword", "0.500"], ["high", "vector", "0.600"], ["hybrid", "0.700"], ["strength", "0.800"],
        ]  # fmt: skip
        assert max(map(len, lines)) <= 80
        assert [line[-1] for line in lines[:3]] == ["…"] * 3
        assert lines[3].endswith(long["id"])

    @pytest.mark.parametrize("print_answer", [results.print_results, stack.print_answer])
    def test_what_was_missing_is_told_in_words(self, print_answer: Any, capsys: pytest.CaptureFixture[str]) -> None:
        print_answer(response(result(), mode="lexical", degraded_reason="no_vectors_of_this_model"))
        told = "mode lexical: answered by words alone, since no item has its vectors yet"
        assert told in (err := capsys.readouterr().err)
        assert "(no_vectors_of_this_model)" in err

    def test_every_reason_of_the_engine_and_the_embedder_has_words(self) -> None:
        root = Path(__file__).parents[2]
        engine = (root / "sql/engine/search.sql").read_text(encoding="utf-8")
        gone = r"'((?:no|keyword|vector)_(?:[a-z]+_)*(?:missing|failed|indexed|query|model|embedding))'"
        found = set(re.findall(gone, engine))
        for file in (root / "functions/almagest/embedding").glob("*.py"):
            found |= set(re.findall(r'EmbeddingUnavailable\(\s*"([a-z_]+)"', file.read_text(encoding="utf-8")))
        assert {"no_terms_in_query", "vector_leg_failed", "model_missing", "model_dimension"} < found
        assert found == set(results.REASONS)

    def test_a_reason_that_is_new_is_told_by_its_code(self) -> None:
        assert results.told_mode("hybrid", None) == "hybrid"
        assert results.told_mode("vector", "new").endswith("since something was missing (new)")


class TestDemonstration:
    """What `make up` asks waits until it can be answered by meaning."""

    def wait(self, monkeypatch: pytest.MonkeyPatch, *pending: int) -> list[int]:
        import httpx

        waiting = list(pending)
        asked: list[int] = []

        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(waiting.pop(0) if len(waiting) > 1 else waiting[0])
            return httpx.Response(200, json={"pending": asked[-1], "indexing": 0, "failed": 0})

        monkeypatch.setattr(stack, "POLL_SECONDS", 0.001)
        with httpx.Client(base_url="http://stack", transport=httpx.MockTransport(answer)) as client:
            stack.await_vectors(client)
        return asked

    def test_waits_until_nothing_is_outstanding(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.wait(monkeypatch, 13, 5, 0) == [13, 5, 0]
        assert capsys.readouterr().err.count("Waiting for their vectors") == 1

    def test_says_nothing_where_nothing_is(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.wait(monkeypatch, 0) == [0]
        assert capsys.readouterr().err == ""

    def test_goes_on_after_a_time(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setattr(stack, "VECTORS_SECONDS", 0.02)
        self.wait(monkeypatch, 13)
        assert "still without vectors" in capsys.readouterr().err


def test_filters_are_lists_json_numbers_or_text() -> None:
    assert items.parse_filters(
        ["kind=memory,page", "type=note", "tags=a", "title=a, b", "priority_max=0.5", 'metadata={"a": [1]}', "any=[]"]
    ) == {
        "kind": ["memory", "page"], "type": "note", "tags": ["a"], "title": "a, b", "priority_max": 0.5,
        "metadata": {"a": [1]}, "any": [],
    }  # fmt: skip
    assert items.parse_filters(["type=a", "tags=b", "type=c,d", "tags=e"]) == {
        "type": ["a", "c", "d"],
        "tags": ["b", "e"],
    }
    assert set(items.LISTS) < set(Filters.model_fields)
