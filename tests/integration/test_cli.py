"""The command line over a stack: what people and agents type, from the first org to erasing an item."""

import io
import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from almagest.cli import main
from almagest.operations.jobs.job import Job
from almagest.operations.registry import JOBS
from infra.local.postgres import Postgres
from tests.conftest import Supabase
from tests.support import Database, clone

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def project(
    cluster: Postgres, template_database: Database, supabase_over: Callable[[str], Supabase]
) -> Iterator[Supabase]:
    with clone(cluster, template_database.name) as database:
        yield supabase_over(database.name)


@pytest.fixture
def run(project: Supabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command with `--json` and return what it printed, parsed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUPABASE_URL", project.url)
    monkeypatch.setenv("SUPABASE_SECRET_KEY", project.keys.secret)

    def run(*arguments: str, status: int = 0) -> Any:
        with pytest.raises(SystemExit) as caught:
            main([*arguments, "--json"])
        out, err = capsys.readouterr()
        assert caught.value.code == status, err
        return json.loads(out) if status == 0 else err

    return run


@pytest.fixture
def org(run: Run, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new org whose owner runs the commands."""
    slug = f"org-{uuid4().hex[:8]}"
    run("org", "create", slug, "--owner-email", "ann@acme.example")
    key = run("key", "create", "--org", slug, "--name", "laptop", "--member", "ann@acme.example")
    monkeypatch.setenv("ALMAGEST_KEY", key["secret"])
    return slug


def _lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    out, err = capsys.readouterr()
    assert caught.value.code == 0, err
    return out


def test_people_agents_and_their_keys(run: Run, org: str, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--org", org)
    run("member", "add", "ben@acme.example", "--name", "Ben", *at)
    run("member", "role", "ben@acme.example", "project_manager", *at)
    roles = {member["email"]: member["role"] for member in run("member", "list", *at)["members"]}
    assert roles == {"ann@acme.example": "owner", "ben@acme.example": "project_manager"}

    run("agent", "create", "builder", *at)
    assert [agent["slug"] for agent in run("agent", "list", *at)["agents"]] == ["builder"]
    key = run("key", "create", "--agent", "builder", "--name", "ci", *at)
    assert key["secret"].startswith(key["prefix"])
    assert "secret" not in json.dumps(run("key", "list", *at))
    table = _lines(capsys, "key", "list", *at)
    assert "builder" in table
    assert key["secret"] not in table
    run("key", "revoke", key["prefix"], *at)
    revoked = {entry["name"]: entry["revoked_at"] for entry in run("key", "list", *at)["keys"]}
    assert revoked["laptop"] is None
    assert revoked["ci"] is not None

    run("member", "remove", "ben@acme.example", *at)
    assert [member["email"] for member in run("member", "list", *at)["members"]] == ["ann@acme.example"]


def test_limits_of_a_key(run: Run, org: str, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--org", org)
    run("agent", "create", "builder", *at)
    limits = ("--rate", "2.5", "--daily-quota", "1000")
    key = run("key", "create", "--agent", "builder", "--name", "ci", *limits, *at)
    assert (key["rate"], key["daily_quota"]) == (2.5, 1000)
    run("search", "anything")  # with Ann's key, through no function: the command's own use counts too
    table = _lines(capsys, "key", "list", *at)
    assert "used today / quota" in table
    assert "0 / 1,000" in table
    assert "1 / no quota" in table
    for options, expected in (
        (("--rate", "5"), (5, 1000)),
        (("--daily-quota", "7"), (5, 7)),
        (("--default-rate",), (None, 7)),
        (("--no-daily-quota", "--rate", "0.5"), (0.5, None)),
    ):
        changed = run("key", "limit", key["id"], *options, *at)
        assert (changed["rate"], changed["daily_quota"]) == expected
    assert "name a rate, a daily quota, or both" in run("key", "limit", key["id"], *at, status=1)
    for options in (("--rate", "0"), ("--rate", "10001"), ("--daily-quota", "0")):
        assert run("key", "limit", key["id"], *options, *at, status=1).startswith("Error (invalid_request)")
    run("key", "limit", key["id"], "--rate", "1", "--default-rate", *at, status=2)
    assert run("key", "limit", str(uuid4()), "--rate", "1", *at, status=1).startswith("Error (unknown_key)")


def test_rotation_of_a_key(run: Run, org: str) -> None:
    at = ("--org", org)
    run("agent", "create", "builder", *at)
    old = run("key", "create", "--agent", "builder", "--name", "ci", "--daily-quota", "9", *at)
    new = run("key", "rotate", old["id"], "--overlap", "90m", *at)
    assert new["secret"] not in (None, old["secret"])
    assert (new["name"], new["agent"], new["daily_quota"]) == ("ci", old["agent"], 9)
    ends = datetime.fromisoformat(new["replaces"]["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=89) < ends <= timedelta(minutes=90)
    assert run("key", "rotate", old["id"], *at, status=1).startswith("Error (key_replaced)")
    for overlap in ("1", "soon", "31d", "-1h", "1w"):
        assert run("key", "rotate", new["id"], "--overlap", overlap, *at, status=1).startswith(
            "Error (invalid_request)"
        )
    day = datetime.now(UTC) + timedelta(days=1)
    default = run("key", "rotate", new["id"], *at)
    assert abs(datetime.fromisoformat(default["replaces"]["expires_at"]) - day) < timedelta(minutes=5)


def test_the_old_name_of_the_command_still_works(run: Run, org: str) -> None:
    assert run("keys", "list", "--org", org) == run("key", "list", "--org", org)


def test_what_they_work_on(run: Run, org: str) -> None:
    at = ("--org", org)
    run("member", "add", "ben@acme.example", *at)
    run("project", "create", "atlas", *at)
    run("client", "create", "globex", "--name", "Globex", *at)
    run("deal", "create", "rollout", "--client", "globex", *at)
    assert run("project", "list", *at)["projects"][0]["slug"] == "atlas"
    assert run("client", "list", *at)["clients"][0]["name"] == "Globex"
    assert run("deal", "list", *at)["deals"][0]["client"] == "globex"

    run("scope", "grant", "--member", "ben@acme.example", "--client", "globex", *at)
    [scope] = run("scope", "list", *at)["scopes"]
    assert (scope["member"], scope["client"]) == ("ben@acme.example", "globex")
    run("scope", "revoke", "--member", "ben@acme.example", "--client", "globex", *at)
    assert run("scope", "list", *at)["scopes"] == []
    assert "name either a member or an agent" in run("scope", "grant", "--client", "globex", *at, status=1)


def test_problems_are_one_sentence_with_a_code(run: Run, org: str, monkeypatch: pytest.MonkeyPatch) -> None:
    message = run("org", "create", org, "--owner-email", "ann@acme.example", status=1)
    assert message.startswith("Error (slug_taken): ")
    assert message.count("\n") == 1
    assert run("get", str(uuid4()), status=1).startswith("Error (")
    monkeypatch.setenv("ALMAGEST_KEY", "alm_wrong")
    assert run("search", "anything", status=1).startswith("Error (unauthorized): ")


def test_several_orgs_have_to_be_told_apart(run: Run, org: str) -> None:
    run("org", "create", f"other-{org}", "--owner-email", "ann@acme.example")
    assert {org, f"other-{org}"} <= {entry["slug"] for entry in run("org", "list")["orgs"]}
    assert run("member", "list", status=1).startswith("Error (org_missing): ")


def test_a_memory_from_the_first_word_to_its_end(run: Run, org: str, capsys: pytest.CaptureFixture[str]) -> None:
    written = run("remember", "We deploy on Tuesdays, never on Fridays.", "--type", "decision", "--tag", "deploy")
    assert written["index_status"] in ("search_ready", "text_ready")
    item = written["id"]

    found = run("search", "when do we deploy?", "--filter", "type=decision", "--filter", "tags=deploy")
    assert [result["id"] for result in found["results"]] == [item]
    assert found["results"][0]["scores"]["final"] > 0
    assert "Tuesdays" in _lines(capsys, "search", "deploy on tuesdays")

    assert run("get", item)["content"] == "We deploy on Tuesdays, never on Fridays."
    assert _lines(capsys, "get", item).endswith("We deploy on Tuesdays, never on Fridays.\n")
    assert [chunk["position"] for chunk in run("get", item, "--chunks")["chunks"]] == [0]

    assert run("pin", item)["pinned"] is True
    assert "Tuesdays" in run("bootstrap", "deploy")["prefix"]
    assert "Tuesdays" in _lines(capsys, "bootstrap")
    assert run("unpin", item)["pinned"] is False

    confirmed = run("validate", item)
    assert (confirmed["id"], confirmed["confidence"]) == (item, pytest.approx(0.6))

    assert run("archive", item)["state"] == "archived"
    assert run("search", "deploy")["results"] == []
    assert run("search", "deploy", "--include-archived")["results"][0]["id"] == item
    assert run("restore", item)["state"] == "active"

    assert set(run("index")) == {"pending", "indexing", "failed"}
    assert run("erase", item, "--yes")["erased"]["chunks"] == 1
    assert run("search", "deploy")["results"] == []
    assert "Nothing" not in _lines(capsys, "search", "deploy")  # that message is for people, on standard error


def test_remember_reads_standard_input(run: Run, org: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "First line, with [brackets].\nSecond line: ünïcödé."
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    fields = ("--title", "Two lines", "--importance", "0.8", "--private", "--metadata", '{"a": [1]}')
    place = ("--conversation", "c1", "--position", "0", "--occurred-at", "2026-01-31T12:00:00+02:00")
    item = run("get", run("remember", *fields, *place)["id"])
    assert item["content"] == text
    assert (item["title"], item["private"], item["metadata"]) == ("Two lines", True, {"a": [1]})
    assert item["importance"] == pytest.approx(0.8)
    assert item["conversation"] == {"id": "c1", "position": 0}
    assert item["occurred_at"].startswith("2026-01-31T10:00:00")


def test_a_repeated_command_with_a_name_of_its_own_has_one_effect(run: Run, org: str) -> None:
    """W1"""
    command = ("remember", "Backups run at 03:00.", "--idempotency-key", "backup-note")
    assert run(*command)["id"] == run(*command)["id"]
    assert run("remember", "Another text.", "--idempotency-key", "backup-note", status=1).startswith("Error (")


def test_erase_asks_first(run: Run, org: str, monkeypatch: pytest.MonkeyPatch) -> None:
    item = run("remember", "Something to forget.")["id"]
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    run("erase", item, status=1)
    assert run("get", item)["state"] == "active"


def test_how_an_org_searches(run: Run, org: str, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--org", org)
    listed = {profile["name"]: profile for profile in run("profile", "list", *at)["profiles"]}
    assert listed.keys() >= {"user_search", "injection", "middleware", "vector_metadata"}
    item = run("remember", "We deploy on Tuesdays.")["id"]

    run("profile", "set", "user_search", "fused_floor=1", "modes.vector.high=0.9", *at)
    assert run("search", "deploy")["results"] == []
    own = run("profile", "set", "user_search", "mmr_lambda=0.5", *at)["own"]
    assert own == {"fused_floor": 1, "mmr_lambda": 0.5, "modes": {"vector": {"high": 0.9}}}
    assert run("profile", "get", "user_search", *at)["own"] == own
    table = _lines(capsys, "profile", "get", "user_search", *at)
    assert re.search(r"fused_floor +1 +yes +0 to 1 ", table)
    assert re.search(r"modes\.vector\.high +0\.9 +yes", table)
    message = run("profile", "set", "user_search", "high=2", "unknown=1", *at, status=1)
    assert message.startswith("Error (invalid_knobs): ")
    assert "knobs.high: must be a number from 0 to 1" in message
    assert "knobs.unknown: unknown knob" in message

    assert run("profile", "reset", "user_search", *at) == {"name": "user_search", "built_in": True}
    assert [result["id"] for result in run("search", "deploy")["results"]] == [item]
    assert run("profile", "set", "support", "candidates=50", *at)["built_in"] is False
    assert "support" in _lines(capsys, "profile", "list", *at)
    assert "candidates" in _lines(capsys, "profile", "set", "support", "candidates=60", *at)
    assert run("profile", "reset", "support", *at)["built_in"] is False
    assert run("profile", "get", "support", *at, status=1).startswith("Error (unknown_profile): ")


def test_how_an_answer_came_about(run: Run, org: str, capsys: pytest.CaptureFixture[str]) -> None:
    item = run("remember", "We deploy on Tuesdays, never on Fridays.", "--title", "Deploys")["id"]
    other = run("remember", "Cats sleep most of the day.", "--type", "fact")["id"]
    question = ("search", "when do we deploy?")

    account = _lines(capsys, *question, "--explain")
    for told in ("user_search", "terms", "deploy", "threshold", "keyword", "weight", "stage", "ms"):
        assert told in account
    trace = run(*question, "--explain")["trace_id"]
    assert run("trace", trace)["results"] == [{"item": item, "title": "Deploys"}]
    assert "user_search" in _lines(capsys, "trace", trace)

    reason = _lines(capsys, *question, "--why-not", other, "--filter", "type=note")
    assert re.search(rf"why not +{other} *\n +step +filters *\n +reason +It does not pass the filter type\.", reason)
    assert run(*question, "--why-not", item)["explain"]["why_not"]["step"] == "answer"
    assert run(*question, "--why-not", str(uuid4()))["explain"]["why_not"]["step"] == "not_found"
    assert run("trace", str(uuid4()), status=1).startswith("Error (not_found): ")


def test_searching_on(run: Run, org: str, capsys: pytest.CaptureFixture[str]) -> None:
    talk = ("--conversation", "talk", "--position")
    items = [run("remember", f"The zebra herd, turn {n}.", "--tag", "herd", *talk, str(n))["id"] for n in range(5)]
    first = run("search", "zebra herd", "-k", "2", "--filter", "tags=herd", "--filter", "kind=memory,page")
    second = run("search", "--cursor", first["next_cursor"], "-k", "3")
    assert {result["id"] for result in (*first["results"], *second["results"])} == set(items)
    with pytest.raises(SystemExit):
        main(["search", "zebra herd", "-k", "2"])
    assert "More: almagest search --cursor" in capsys.readouterr().err
    assert run("search", "--cursor", "x", status=1).startswith("Error (invalid_cursor)")
    assert run("search", "--cursor", first["next_cursor"], "--level", "chunk", status=1).startswith("Error (invalid")
    assert "query: required" in run("search", status=1)

    filters = ('any=[{"tags": ["none"]}, {"conversation": "talk"}]', "metadata={}", "priority_max=0.5")
    options = [option for each in filters for option in ("--filter", each)]
    assert len(run("search", "zebra", *options)["results"]) == 5
    assert "not JSON" in run("search", "zebra", "--filter", "metadata={", status=2)
    assert (
        run("search", "zebra", "--as-of", "2001-01-01T00:00:00Z", "--leg", "keyword", "--level", "item")["results"]
        == []
    )

    beside = run("get", items[2], "--neighbours", "--reach", "1")
    assert [message["content"] for side in ("before", "after") for message in beside[side]] == [
        "The zebra herd, turn 1.",
        "The zebra herd, turn 3.",
    ]
    assert "turn 4" in _lines(capsys, "get", items[2], "--neighbours")
    assert [chunk["position"] for chunk in run("get", items[2], "--around", "0")["chunks"]] == [0]
    run("get", items[2], "--around", "0", "--neighbours", status=2)


def test_an_org_is_exported_erased_and_imported(
    run: Run, org: str, project: Supabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("DATABASE_URL", project.database_url)
    written = run("remember", "Otters hold hands while they sleep.", "--tag", "animals")
    run("remember", "Ann prefers short notes.", "--private")
    file, own = tmp_path / "org.jsonl", tmp_path / "ann.jsonl"

    assert _lines(capsys, "export", "--org", org, "-o", str(file)) == ""
    assert _lines(capsys, "export", "--org", org, "--user", "ann@acme.example", "-o", str(own)) == ""
    assert file.stat().st_mode & 0o077 == 0
    assert "Otters" in file.read_text()
    assert "Otters" not in own.read_text()
    assert "Ann prefers" in own.read_text()
    assert _lines(capsys, "export", "--org", org) == file.read_text()

    assert "org_exists" in run("import", str(file), status=1)
    with psycopg.connect(project.database_url) as connection:
        connection.execute("delete from almagest.orgs where slug = %s", (org,))
        connection.execute("delete from almagest.audit_log")
    counts = run("import", str(file))
    assert (counts["items"], counts["chunks"], counts["members"]) == (2, 2, 1)
    key = run("keys", "create", "--org", org, "--name", "laptop", "--member", "ann@acme.example")
    monkeypatch.setenv("ALMAGEST_KEY", key["secret"])
    [found] = run("search", "otters")["results"]
    assert found["id"] == written["id"]

    own.write_text(own.read_text().replace('"priority"', '"prio"', 1))
    wrong = run("import", str(own), "--org", org, status=1)
    assert re.search(r"invalid_line\): Line 2: items have no 'prio'", wrong), wrong
    assert "not_read" in run("import", str(tmp_path / "nothing"), status=1)
    assert "unknown_org" in _failing(capsys, "export", "--org", "nobody", "-o", str(tmp_path / "none"))
    assert not list(tmp_path.glob("none*"))


def test_an_operators_command_says_what_it_lacks(
    run: Run, org: str, cluster: Postgres, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for url, code in (
        (cluster.url(), "schema_mismatch"),  # a database that nothing was migrated in
        ("postgresql://nobody@127.0.0.1:1/none", "database_unavailable"),
        ("postgresql:nonsense=1", "misconfigured"),
    ):
        monkeypatch.setenv("DATABASE_URL", url)
        assert code in _failing(capsys, "export", "--org", org), url
        assert code in run("retention", "status", status=1), url


def test_retention_is_said_and_done(run: Run, org: str, project: Supabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", project.database_url)
    assert run("retention", "set", "--org", org, "--trace-days", "30")["trace_days"] == 30
    status = run("retention", "status")
    assert {"org": None, "trace_days": 90, "idempotency_days": 7} in status["settings"]
    assert any(each["org"] == org for each in status["settings"])
    assert len(status["due"]) >= 2
    assert run("retention", "run")["added"] >= 2
    assert run("retention", "status")["due"] == []
    run("retention", "set", "--org", org, "--reset")
    assert [each["org"] for each in run("retention", "status")["settings"]] == [None]
    for words in (["--trace-days", "3"], ["--reset"]):
        assert "unknown_org" in run("retention", "set", "--org", "nobody", *words, status=1)
    assert "invalid_request" in run("retention", "set", "--org", org, status=1)


def _failing(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 1
    return capsys.readouterr().err


def test_jobs_are_listed_done_and_remembered(
    run: Run, org: str, project: Supabase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", project.database_url)
    at = "2026-11-30T12:00:00+02:00"
    done = run("jobs", "run", "index_sweep", "--scheduled-for", at)
    assert (done["state"], done["scheduled_for"]) == ("succeeded", "2026-11-30T10:00:00+00:00")
    assert run("jobs", "run", "index_sweep", "--scheduled-for", "2026-11-30T10:00:00Z")["state"] == "done"
    assert run("jobs", "run", "index_sweep")["run"] != done["run"]

    listed = {job["job"]: job for job in run("jobs", "list")["jobs"]}
    assert listed.keys() == JOBS.keys()
    sweep = listed["index_sweep"]
    assert sweep["last"]["figures"].keys() == done["figures"].keys()
    assert sweep["schedule"] == "rate(5 minutes)"
    # Five minutes at a time from the last one that its schedule sent, not from the one by hand.
    following = datetime.fromisoformat(sweep["next"])
    assert timedelta() <= following - datetime.now(UTC) + timedelta(seconds=5) <= timedelta(minutes=5, seconds=5)
    assert (following.minute % 5, following.second) == (0, 0)

    [by_hand, first] = run("jobs", "history", "index_sweep")["runs"]
    assert [first["id"], first["state"], first["alive"]] == [done["run"], "succeeded", False]
    assert [step["name"] for step in first["steps"]] == ["index", "retokenise", "statistics"]
    assert [each["id"] for each in run("jobs", "history", "-n", "1")["runs"]] == [by_hand["id"]]
    assert "index_sweep" in _lines(capsys, "jobs", "list")
    assert "succeeded" in _lines(capsys, "jobs", "history")


def test_what_is_wrong_with_a_run_is_said(run: Run, project: Supabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", project.database_url)
    unknown = " ".join(run("jobs", "run", "sweeping", status=1).split())
    assert "unknown_job" in unknown
    assert all(name in unknown for name in JOBS)
    assert "unknown_job" in run("jobs", "history", "sweeping", status=1)
    for wrong in ("noon", "2026-11-30", "2026-11-30T12:00:00", "0001-01-01T00:00:00+14:00"):
        assert "invalid_time" in run("jobs", "run", "retention", "--scheduled-for", wrong, status=1), wrong
    monkeypatch.setenv("DATABASE_URL", "postgresql://postgres@127.0.0.1:1/postgres")
    told = " ".join(run("jobs", "run", "retention", status=1).split())
    assert "database_unavailable" in told
    assert "is DATABASE_URL right" in told


def test_runs_by_schedule_are_of_one_stack(run: Run, project: Supabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the first machine that does one by hand would be the installation, and open and close what people are told."""
    monkeypatch.setenv("DATABASE_URL", project.database_url)
    assert run("jobs", "run", "retention", "--scheduled-for", "2026-11-28T03:30:00Z")["state"] == "succeeded"
    monkeypatch.setenv("ALMAGEST_STACK", "laptop")
    told = run("jobs", "run", "retention", "--scheduled-for", "2026-11-29T03:30:00Z", status=1)
    assert "other_stack" in told
    assert run("jobs", "run", "retention")["state"] == "succeeded"
    monkeypatch.setenv("ALMAGEST_STACK", "local")
    assert run("jobs", "run", "retention", "--scheduled-for", "2026-11-29T03:30:00Z")["state"] == "succeeded"


def test_a_job_that_is_at_work_already_is_left_alone(
    project: Supabase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """R9"""
    monkeypatch.setenv("SUPABASE_URL", project.url)
    monkeypatch.setenv("SUPABASE_SECRET_KEY", project.keys.secret)
    monkeypatch.setenv("DATABASE_URL", project.database_url)
    with psycopg.connect(project.database_url, autocommit=True) as connection:
        [run_id] = connection.execute(
            "select run from engine.claim_run('retention', '2026-11-30', 'another', 60)"
        ).fetchone() or (None,)
        try:
            with pytest.raises(SystemExit) as caught:
                main(["jobs", "run", "retention", "--json"])
        finally:
            connection.execute("select engine.end_run(%s, 'another', '{}', null)", (run_id,))
    out, err = capsys.readouterr()
    assert (caught.value.code, json.loads(out)["state"]) == (0, "skipped")
    assert f"at work already, in run {run_id}" in err


def test_a_job_that_fails_is_an_error_and_its_logs_stay_off_standard_output(
    project: Supabase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """R14, P7"""
    monkeypatch.setenv("SUPABASE_URL", project.url)
    monkeypatch.setenv("SUPABASE_SECRET_KEY", project.keys.secret)
    monkeypatch.setenv("DATABASE_URL", project.database_url)

    def work(_: object) -> dict[str, Any]:
        logging.getLogger("almagest.operations.cleaning").warning("an item was left")
        raise ValueError("what Ann had written")

    monkeypatch.setitem(JOBS, "cleaning", Job("cleaning", "Cleans.", "rate(1 day)", 60, work))
    with pytest.raises(SystemExit) as caught:
        main(["jobs", "run", "cleaning", "--json"])
    out, err = capsys.readouterr()
    assert (caught.value.code, json.loads(out)["state"]) == (1, "failed")
    assert "an item was left" in err
    assert "cleaning failed: ValueError" in err
    assert "Ann" not in out + err
    assert "Traceback" not in err


def _told(project: Supabase, org: str, severity: str = "warning", key: str = "test") -> str:
    """Open an entry of the Hub for everybody in an org, as a job does it, and return its id."""
    tried = [{"what": "Indexed again", "outcome": "left", "when": "2026-11-30T00:15:02.1+00:00"}, "x"]
    with psycopg.connect(project.database_url, autocommit=True) as connection:
        row = connection.execute(
            "select engine.open_hub_entry(id, null, 'health', %s, %s, 'Items wait', 'Three items wait.', %s,"
            " 'Look at the index function.', '{}')::text from almagest.orgs where slug = %s",
            (key, severity, Jsonb(tried), org),
        ).fetchone()
    assert row is not None
    return str(row[0])


def test_what_people_are_told(run: Run, org: str, project: Supabase, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("hub") == {"entries": []}
    entry, worse = _told(project, org), _told(project, org, "critical", "test.worse")
    assert [each["id"] for each in run("hub")["entries"]] == [worse, entry]
    told = _lines(capsys, "hub")
    for said in (
        "CRITICAL  Items wait",
        "Three items wait.",
        "Indexed again (left, 2026-11-30 00:15 UTC)",
        "tried  x",
        entry,
    ):
        assert said in told
    assert "to do  Look at the index function." in told

    assert run("hub", "read", entry)["read_at"]
    assert run("hub", "dismiss", worse)["dismissed_at"]
    assert [each["id"] for each in run("hub")["entries"]] == [entry]
    assert [each["id"] for each in run("hub", "--all")["entries"]] == [worse, entry]
    assert "dismissed" in _lines(capsys, "hub", "--all")
    assert run("hub", "dismiss", worse, "--undo")["dismissed_at"] is None
    assert run("hub", "read", entry, "--undo")["read_at"] is None

    for number in range(101):
        _told(project, org, "info", f"test.{number}")
    assert len(run("hub")["entries"]) == 103
    assert run("hub", "read", str(uuid4()), status=1).startswith("Error (not_found): ")
    assert "must be a UUID" in run("hub", "read", "nothing", status=2)
    with pytest.raises(SystemExit) as caught:
        main(["hub", "--json", "read", entry])
    assert caught.value.code == 2


def test_an_agent_reads_what_it_is_told_and_cannot_mark_it(
    run: Run, org: str, project: Supabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = _told(project, org)
    run("agent", "create", "builder", "--org", org)
    key = run("key", "create", "--agent", "builder", "--name", "ci", "--org", org)
    monkeypatch.setenv("ALMAGEST_KEY", key["secret"])
    assert [each["id"] for each in run("hub")["entries"]] == [entry]
    refused = run("hub", "dismiss", entry, status=1)
    assert refused.startswith("Error (no_user): ")
    assert refused.count("\n") == 1


NOT_UTF8 = os.fsdecode(b"\xff\xfe")


@pytest.mark.parametrize(
    "words",
    [
        ["export", "--org", NOT_UTF8],
        ["retention", "set", "--org", NOT_UTF8, "--trace-days", "5"],
        ["profile", "get", NOT_UTF8],
        ["remember", "ok", "--idempotency-key", NOT_UTF8],
        ["search", NOT_UTF8],
        ["jobs", "run", NOT_UTF8],
    ],
)
def test_what_is_not_utf8_is_an_error_in_one_sentence(
    run: Run, org: str, project: Supabase, monkeypatch: pytest.MonkeyPatch, words: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("DATABASE_URL", project.database_url)
    if words[0] == "export":
        with pytest.raises(SystemExit):
            main(words)
        told = capsys.readouterr().err
    else:
        told = run(*words, status=1)
    assert re.match(r"Error \([a-z0-9_]+\): ", told)
    assert "Traceback" not in told


@pytest.mark.parametrize("name", ["ALMAGEST_KEY", "ALMAGEST_STACK", "DATABASE_URL"])
def test_so_is_a_variable_that_is_not(
    run: Run, org: str, project: Supabase, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", project.database_url)
    monkeypatch.setenv(name, NOT_UTF8)
    words = ["hub"] if name == "ALMAGEST_KEY" else ["jobs", "run", "index_sweep"]
    assert re.match(r"Error \([a-z0-9_]+\): ", run(*words, status=1))
