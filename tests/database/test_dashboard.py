"""What people read in the Supabase dashboard: right, without content, and for nobody else."""

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from infra.local import ROOT
from infra.local.postgres import Postgres
from tests.database.support import Org, Server, one_hot, search, serve, write_one
from tests.support import Database, clone

ROLES = ("anon", "authenticated", "service_role", "almagest_reader", "authenticator")
COLUMNS = {
    "degraded_retrievals": [
        "created_at", "org_id", "purpose", "profile", "mode", "degraded_reason", "candidates", "trace_id", "request_id",
        "results",
    ],
    "health_history": [
        "checked_at", "run_id", "status", "ok", "degraded", "failed", "not_passed", "seconds", "remediated_by", "tried",
        "mended",
    ],
    "index_backlog": [
        "org_id", "waiting", "indexing", "leases_expired", "failed", "most_attempts", "oldest_seconds",
    ],
    "job_history": [
        "scheduled_for", "job", "state", "attempts", "late_seconds", "seconds", "steps", "done", "broke_off_at",
        "error", "figures", "started_at", "lease_expired", "run_id",
    ],
    "latest_health": [
        "check_name", "status", "measured", "threshold", "unit", "sentence", "checked_at", "age", "checked_by",
        "run_id", "duration_ms",
    ],
    "least_useful_items": [
        "item_id", "org_id", "kind", "type", "opened", "cited", "surfaced", "last_at", "updated_at", "strength",
    ],
    "most_useful_items": [
        "item_id", "org_id", "kind", "type", "state", "opened", "cited", "surfaced", "first_places", "mean_rank",
        "last_at", "strength",
    ],
    "open_hub_entries": [
        "severity", "key", "told_to", "org_id", "found", "to_do", "tries", "opened_at", "updated_at", "age", "read_by",
        "dismissed_by", "source", "entry_id",
    ],
    "sizes": [
        "table_name", "estimated_rows", "table_bytes", "index_bytes", "total_bytes", "total", "partitions", "dead_rows",
    ],
    "slow_retrievals": [
        "took_ms", "created_at", "org_id", "purpose", "profile", "mode", "candidates", "filter_ms", "terms_ms",
        "keyword_ms", "vector_ms", "substring_ms", "rank_ms", "diversify_ms", "read_ms", "terms", "exact", "trace_id",
        "request_id",
    ],
}  # fmt: skip


def _degraded(server: Server) -> list[Any]:
    return server.rows(
        "select org_id::text, mode, degraded_reason, results, trace_id::text from dashboard.degraded_retrievals"
    )


def test_degraded_retrievals_are_listed_newest_first(server: Server, org: Org) -> None:
    other = Org(server, "other")
    write_one(server, org.owner, "We retry with backoff.", one_hot(1))
    write_one(server, other.owner, "They retry as well.", one_hot(1))
    hybrid = search(server, org.owner, "retry", one_hot(1))
    without_model = search(server, org.owner, "retry", degraded_reason="model_missing", request_id="r-1")
    without_terms = search(server, org.owner, "of the", one_hot(1))
    empty = search(server, other.owner, "nothing like it")
    server.call("bootstrap", org.owner, {})
    bootstrap = server.call("bootstrap", org.owner, {"query": "retry", "degraded_reason": "model_missing"})

    assert hybrid["mode"] == "hybrid"
    assert _degraded(server) == [
        (org.id, "lexical", "model_missing", 1, bootstrap["trace_id"]),
        (other.id, "lexical", "no_embedding", 0, empty["trace_id"]),
        (org.id, "vector", "no_terms_in_query", 1, without_terms["trace_id"]),
        (org.id, "lexical", "model_missing", 1, without_model["trace_id"]),
    ]
    assert server.rows("select request_id from dashboard.degraded_retrievals where request_id is not null") == ["r-1"]


def test_the_searches_of_the_health_checks_are_nobodys(server: Server, org: Org) -> None:
    system = server.value("select engine.system_caller()")
    for caller in (system, org.owner):
        search(server, caller, "retry")
    server.rows("update almagest.retrievals set took_ms = 900")
    for view in ("degraded_retrievals", "slow_retrievals"):
        assert server.rows(f"select org_id::text from dashboard.{view}") == [org.id]


def test_only_the_last_days_are_listed(server: Server, org: Org) -> None:
    search(server, org.owner, "retry")
    assert len(_degraded(server)) == 1
    server.rows("update almagest.retrievals set created_at = created_at - interval '15 days'")
    assert _degraded(server) == []


def _run(server: Server, job: str, hours: float, state: str = "succeeded", **columns: Any) -> int:
    """A run of a job that was scheduled so many hours ago, began two seconds late, and took a minute."""
    run = server.value(
        "insert into almagest.job_runs (job, scheduled_for, state, started_at, finished_at) select %s, s.at, %s,"
        " s.at + interval '2 seconds', case when %s <> 'running' then s.at + interval '62 seconds' end"
        " from (select date_trunc('second', now()) - make_interval(secs => %s * 3600) as at) as s returning id",
        *(job, state, state, hours),
    )
    for column, value in columns.items():
        server.rows(f"update almagest.job_runs set {column} = %s where id = %s", value, run)
    return int(run)


def _check(server: Server, run: int, name: str, status: str, hours: float) -> None:
    server.rows(
        "insert into almagest.health_checks (run_id, name, status, measured, threshold, unit, sentence, duration_ms,"
        " checked_at) values (%s, %s, %s, 3, 0, 'items', 'Three items wait.', 12, now() - make_interval(secs => %s))",
        *(run, name, status, hours * 3600),
    )


def _health(server: Server, hours: float, **statuses: str) -> int:
    """A run of health with what its checks found."""
    run = _run(server, "health", hours)
    worst = min(statuses.values(), key=["failed", "degraded", "ok"].index)
    server.rows(
        "insert into almagest.health_runs (run_id, status, checked_at)"
        " values (%s, %s, now() - make_interval(secs => %s))",
        *(run, worst, hours * 3600),
    )
    for name, status in statuses.items():
        _check(server, run, name, status, hours)
    return run


def test_the_latest_health_is_what_each_check_found_last(server: Server) -> None:
    _health(server, 24, staleness="failed", table_access="ok", canary_quality="ok")
    run = _health(server, 12, staleness="failed", table_access="ok", canary_quality="degraded")
    mending = _run(server, "remediation", 11.75)
    _check(server, mending, "staleness", "ok", 11.7)
    found = server.rows(
        "select check_name, status, measured, threshold, unit, checked_by, run_id, age > '11 hours'"
        " from dashboard.latest_health"
    )
    assert found == [
        ("canary_quality", "degraded", 3, 0, "items", "health", run, True),
        ("staleness", "ok", 3, 0, "items", "remediation", mending, True),
        ("table_access", "ok", 3, 0, "items", "health", run, True),
    ]


def test_the_history_of_health_counts_checks_and_what_was_mended(server: Server) -> None:
    _health(server, 91 * 24, staleness="failed")
    passed = _health(server, 24, staleness="ok", table_access="ok")
    run = _health(server, 12, staleness="failed", table_access="ok", canary_quality="degraded")
    mending = _run(server, "remediation", 11.75)
    server.rows("update almagest.health_runs set remediated_by = %s where run_id = %s", mending, run)
    for action, state in (("index", "mended"), ("release_leases", "unchanged")):
        server.rows(
            "insert into almagest.remediations (run_id, health_run_id, check_name, action, attempt, state)"
            " values (%s, %s, 'staleness', %s, 1, %s)",
            *(mending, run, action, state),
        )
    found = server.rows(
        "select run_id, status, ok, degraded, failed, not_passed, seconds, remediated_by, tried, mended"
        " from dashboard.health_history"
    )
    assert found == [
        (run, "failed", 1, 1, 1, ["canary_quality", "staleness"], 60, mending, 2, 1),
        (passed, "ok", 2, 0, 0, [], 60, None, 0, 0),
    ]


def test_open_hub_entries_say_what_was_found_of_the_installation_alone(server: Server, org: Org) -> None:
    opening = (
        "select engine.open_hub_entry(%s, %s, 'health', %s, %s, 'T', 'Three items wait.', '[]', 'Look.', '{}')::text"
    )
    owner, member = str(org.owner["user"]), org.member()
    of_all = server.value(opening, None, None, "health.staleness", "warning")
    of_org = server.value(opening, org.id, None, "review.waits", "critical")
    of_one = server.value(opening, org.id, owner, "review.mine", "info")
    server.value(opening, None, None, "closed", "critical")
    server.value("select engine.close_hub_entry(null, null, 'closed')")
    server.value(opening, None, None, "health.staleness", "warning")
    for who in (org.owner, member):
        server.call("mark_hub", who, {"id": of_org, "mark": "read"})
    server.call("mark_hub", member, {"id": of_org, "mark": "dismissed"})
    found = server.rows(
        "select entry_id::text, severity, key, told_to, org_id::text, found, to_do, tries, read_by, dismissed_by"
        " from dashboard.open_hub_entries"
    )
    assert found == [
        (of_org, "critical", "review.waits", "org", org.id, None, None, 1, 2, 1),
        (of_all, "warning", "health.staleness", "installation", None, "Three items wait.", "Look.", 2, 0, 0),
        (of_one, "info", "review.mine", "person", org.id, None, None, 1, 0, 0),
    ]


def test_what_a_search_took_is_kept_beside_its_trace(server: Server, org: Org) -> None:
    write_one(server, org.owner, "We retry with backoff.", one_hot(1))
    asked = search(server, org.owner, "retry", one_hot(1))["trace_id"]
    [(took, stages)] = server.rows("select took_ms, trace -> 'stages_ms' from almagest.retrievals where id = %s", asked)
    assert took == pytest.approx(sum(stages.values()), abs=0.01)
    assert took > 0
    server.call("bootstrap", org.owner, {})
    assert server.rows("select took_ms from almagest.retrievals where degraded_reason = 'no_query'") == [None]


def test_slow_retrievals_are_listed_with_the_time_of_each_stage(server: Server, org: Org) -> None:
    write_one(server, org.owner, "We retry with backoff.", one_hot(1))
    asked = [search(server, org.owner, "retry", one_hot(1), request_id=f"r-{n}")["trace_id"] for n in range(4)]
    slow = {asked[0]: (249, 0), asked[1]: (250, 1), asked[2]: (900, 2), asked[3]: (5000, 15)}
    for trace, (took, days) in slow.items():
        server.rows(
            "update almagest.retrievals set took_ms = %s, created_at = created_at - make_interval(days => %s),"
            """ trace = trace || '{"stages_ms": {"filter": 1, "keyword": 200.5, "read": 7}}' where id = %s""",
            *(took, days, trace),
        )
    found = server.rows(
        "select trace_id::text, took_ms, filter_ms, keyword_ms, vector_ms, read_ms, terms, exact, mode, request_id"
        " from dashboard.slow_retrievals"
    )
    assert found == [
        (asked[2], 900, 1, 200.5, None, 7, 1, "true", "hybrid", "r-2"),
        (asked[1], 250, 1, 200.5, None, 7, 1, "true", "hybrid", "r-1"),
    ]


def test_the_backlog_is_counted_by_org(server: Server, org: Org) -> None:
    other = Org(server, "other")
    for number, status in enumerate(("pending", "text_ready", "indexing", "failed", "search_ready", "search_ready")):
        item = org.item(f"note {number}")
        server.rows(
            "update almagest.items set index_status = %s, index_attempts = %s,"
            " index_after = now() - interval '10 minutes',"
            " lease_expires_at = case when %s = 'indexing' then now() - interval '1 minute' end where id = %s",
            *(status, number, status, item),
        )
    later = other.item("later")
    server.rows("update almagest.items set index_after = now() + interval '1 hour' where id = %s", later)
    server.rows("update almagest.items set index_status = 'text_ready' where id = %s", later)
    found = server.rows(
        "select org_id::text, waiting, indexing, leases_expired, failed, most_attempts, oldest_seconds::int"
        " from dashboard.index_backlog"
    )
    assert [row[:6] for row in found] == [(org.id, 2, 1, 1, 1, 3), (other.id, 1, 0, 0, 0, 0)]
    assert 600 <= found[0][6] < 660
    assert found[1][6] == 0


def _used(server: Server, org: Org, item: str, **uses: int) -> None:
    for use, times in uses.items():
        server.rows(
            "insert into almagest.activations (org_id, item_id, use, rank, profile)"
            " select %s, %s, %s, n, 'user_search' from generate_series(1, %s) as n",
            *(org.id, item, use, times),
        )


def test_the_most_useful_items_are_those_that_searches_led_to(server: Server, org: Org) -> None:
    often, opened, once, never = (org.item(f"note {number}") for number in range(4))
    erased, hidden = org.item("erased"), org.item("system")
    for item, uses in (
        (often, {"surfaced": 4}),
        (opened, {"surfaced": 1, "opened": 1, "cited": 1}),
        (once, {"surfaced": 1}),
    ):
        _used(server, org, item, **uses)
    _used(server, org, erased, surfaced=9)
    server.rows("update almagest.items set state = 'erased', content = null, index_status = null where id = %s", erased)
    found = server.rows(
        "select item_id::text, opened, cited, surfaced, first_places, mean_rank::float8, strength::float8"
        " from dashboard.most_useful_items"
    )
    strength = round(server.value("select engine.item_strength(i) from almagest.items as i where id = %s", often), 3)
    assert found == [
        (opened, 1, 1, 1, 1, 1, strength),
        (often, 0, 0, 4, 1, 2.5, strength),
        (once, 0, 0, 1, 1, 1, strength),
    ]
    assert never not in str(found)
    assert hidden not in str(found)
    server.rows("update almagest.orgs set is_system = true where id = %s", org.id)
    assert server.rows("select item_id from dashboard.most_useful_items") == []


def test_the_least_useful_items_have_stood_for_long_and_led_nowhere(server: Server, org: Org) -> None:
    other = Org(server, "other")
    weak, often, seen, new, archived = (org.item(f"note {number}") for number in range(5))
    theirs = other.item("theirs")
    server.rows("update almagest.items set updated_at = now() - interval '31 days' where id <> %s", new)
    server.rows("update almagest.items set state = 'archived', archived_at = now() where id = %s", archived)
    server.rows("update almagest.strength_signals set starting_strength = 0.1 where item_id = %s", weak)
    _used(server, org, often, surfaced=3, opened=1)
    _used(server, org, seen, surfaced=200)
    found = server.rows(
        "select item_id::text, opened, cited, surfaced, last_at is null, strength::float8"
        " from dashboard.least_useful_items"
    )
    strength = {
        item: round(server.value("select engine.item_strength(i) from almagest.items as i where id = %s", item), 3)
        for item in (weak, theirs, seen, often)
    }
    assert found == [
        (weak, 0, 0, 0, True, strength[weak]),
        (theirs, 0, 0, 0, True, strength[theirs]),
        (seen, 0, 0, 100, False, strength[seen]),  # counted no further
        (often, 1, 0, 3, False, strength[often]),
    ]
    server.rows("update almagest.orgs set is_system = true where id = %s", other.id)
    assert theirs not in server.rows("select item_id::text from dashboard.least_useful_items")


def test_the_history_of_jobs_tells_how_far_each_run_got(server: Server) -> None:
    _run(server, "retention", 15 * 24)
    done = _run(server, "health", 12)
    broken = _run(server, "index_sweep", 2, "failed", error="OutOfTime: the run's time was over.", attempts=3)
    dead = _run(server, "index_sweep", 1, "running", lease_expires_at="2026-01-01T00:00Z")
    for run, position, name, state in (
        (broken, 1, "index", "succeeded"), (broken, 2, "retokenise", "failed"), (dead, 1, "index", "running"),
    ):  # fmt: skip
        server.rows(
            "insert into almagest.job_steps (run_id, name, position, state) values (%s, %s, %s, %s)",
            *(run, name, position, state),
        )
    found = server.rows(
        "select run_id, job, state, attempts, late_seconds::float8, steps, done, broke_off_at, error, lease_expired"
        " from dashboard.job_history"
    )
    assert found == [
        (dead, "index_sweep", "running", 1, 2, 1, 0, None, None, True),
        (broken, "index_sweep", "failed", 3, 2, 2, 1, "retokenise", "OutOfTime: the run's time was over.", False),
        (done, "health", "succeeded", 1, 2, 0, 0, None, None, False),
    ]
    seconds = dict(server.rows("select run_id, seconds::float8 from dashboard.job_history"))
    assert seconds[broken] == 60
    assert 3590 < seconds[dead] < 3700  # still going


def test_sizes_are_those_of_the_tables_and_of_partitions_together(server: Server, org: Org) -> None:
    for number in range(50):
        org.item(f"note {number}")
    search(server, org.owner, "note")
    server.rows("analyze")
    found = {row[0]: row[1:] for row in server.rows("select * from dashboard.sizes")}
    tables = server.rows(
        "select relname::text from pg_class where relnamespace = 'almagest'::regnamespace and relkind in ('r', 'p')"
        " and not relispartition"
    )
    assert found.keys() == set(tables)
    assert found["items"][0] == 50
    for name, (_, table, index, total, *_, partitions, _) in found.items():
        assert total == table + index
        if partitions == 0:
            assert total == server.value("select pg_total_relation_size(%s::regclass)", f"almagest.{name}")
    assert found["retrievals"][5] == server.value(
        "select count(*) from pg_inherits where inhparent = 'almagest.retrievals'::regclass"
    )
    assert found["retrievals"][0] == 1
    totals = [row[3] for row in found.values()]
    assert totals == sorted(totals, reverse=True)


def test_nothing_of_what_was_written_asked_or_found_is_in_them(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "The vault code is quokka.", title="Vault", source_ref="quokka.txt")
    asked = search(server, org.owner, "quokka vault", filters={"title": "vault"})["trace_id"]
    server.rows("update almagest.retrievals set took_ms = 400 where id = %s", asked)
    server.rows(
        "update almagest.items set index_status = 'failed', index_error = 'quokka',"
        " updated_at = now() - interval '40 days'"
    )
    for person in (None, str(org.owner["user"])):
        server.rows(
            "select engine.open_hub_entry(%s, %s, 'review', 'review.x', 'info', 'Vault', 'quokka', '[\"quokka\"]',"
            """ 'vault', '{"vault": "quokka"}')""",
            *(org.id, person),
        )
    _health(server, 1, staleness="ok")
    views = server.rows("select table_name::text from information_schema.views where table_schema = 'dashboard'")
    assert set(views) == COLUMNS.keys()
    for view, columns in COLUMNS.items():
        found = server.rows(
            "select column_name::text from information_schema.columns"
            " where table_schema = 'dashboard' and table_name = %s order by ordinal_position",
            view,
        )
        assert found == columns
        [text] = server.rows(f"select string_agg(v::text, ' ') from dashboard.{view} as v")
        assert text, view
        secrets = ["quokka", "vault", "Vault", str(org.owner["user"])]
        assert not [word for word in secrets if word in text], view
        assert (item in text) == (view in ("most_useful_items", "least_useful_items")), view


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("view", COLUMNS)
def test_nobody_but_the_owner_reads_them(server: Server, role: str, view: str) -> None:
    query = f"select * from dashboard.{view}".encode()
    with server.database.connect(role) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(query)


@pytest.mark.parametrize("view", COLUMNS)
def test_a_grant_on_a_view_alone_opens_nothing(server: Server, view: str) -> None:
    server.rows("grant usage on schema dashboard to authenticated")
    server.rows(f"grant select on dashboard.{view} to authenticated")
    with server.database.connect("authenticated") as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(f"select * from dashboard.{view}".encode())


@pytest.mark.parametrize("view", COLUMNS)
def test_the_page_has_a_views_columns_in_its_order(view: str) -> None:
    page = (ROOT / "docs" / "dashboard.md").read_text()
    section = re.split(r"(?m)^## ", page.split(f"\n## {view}\n")[1])[0]
    assert re.findall(r"(?m)^\| `(\w+)` \|", section) == COLUMNS[view]


@pytest.mark.parametrize("view", COLUMNS)
def test_a_view_says_what_it_is(server: Server, view: str) -> None:
    assert server.value("select obj_description(%s::regclass)", f"dashboard.{view}")


# What they cost


@pytest.fixture(scope="module")
def grown(cluster: Postgres, template_database: Database) -> Iterator[Server]:
    """A database with 30,000 items, 200,000 activations and 20,000 searches, one of a hundred of them slow."""
    with clone(cluster, template_database.name) as copy, serve(copy) as server:
        orgs = [Org(server, f"org-{number}") for number in range(3)]
        for org in orgs:
            server.rows(
                "insert into almagest.items"
                " (org_id, kind, type, content, content_hash, origin, index_status, updated_at)"
                " select %s, 'memory', 'note', repeat('x', 500) || n, md5(n::text), 'agent',"
                " case when n %% 200 = 0 then 'text_ready' else 'search_ready' end, now() - interval '90 days'"
                " from generate_series(1, 10000) as n",
                org.id,
            )
            server.rows(
                "insert into almagest.retrievals (org_id, purpose, profile, mode, took_ms, created_at, trace)"
                " select %s, 'search', 'user_search', 'hybrid', case when n %% 100 = 0 then 300 else 8 end,"
                " now() - make_interval(mins => n), jsonb_build_object('stages_ms', jsonb_build_object('rank', 5),"
                " 'terms', '[]'::jsonb, 'candidates', (select jsonb_agg(md5((n + g)::text)) from"
                " generate_series(1, 60) as g)) from generate_series(1, 7000) as n",
                org.id,
            )
        server.rows(
            "insert into almagest.activations (org_id, item_id, use, rank, created_at)"
            " select i.org_id, i.id, 'surfaced', 1 + n % 10, now() - interval '20 days'"
            " from generate_series(1, 7) as n cross join almagest.items as i"
        )
        server.rows("vacuum analyze")
        yield server


def _plan(server: Server, view: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What was done for a view, as measured: the whole, and every node of it."""
    [[done]] = server.rows(f"explain (analyze, buffers, format json) select * from dashboard.{view}")
    waiting, nodes = [done["Plan"]], []
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        waiting += node.get("Plans", [])
    return done, nodes


def _read(nodes: list[dict[str, Any]], table: str) -> float:
    """How many rows of a table and its partitions were looked at."""
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes
        if node.get("Relation Name", "").startswith(table) and node["Node Type"] != "Bitmap Index Scan"
    )


def test_slow_searches_are_found_without_the_others(grown: Server) -> None:
    _, nodes = _plan(grown, "slow_retrievals")
    assert grown.value("select count(*) from dashboard.slow_retrievals") == 210
    assert 200 <= _read(nodes, "retrievals") <= 250
    assert {node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"} <= {"orgs"}


def test_the_backlog_costs_what_waits(grown: Server) -> None:
    _, nodes = _plan(grown, "index_backlog")
    assert _read(nodes, "items") == 150
    assert {node.get("Index Name") for node in nodes if "Index Name" in node} == {"items_queue"}


def test_the_most_useful_items_come_from_so_many_activations(grown: Server) -> None:
    done, nodes = _plan(grown, "most_useful_items")
    assert grown.value("select count(*) from almagest.activations") > 200_000
    assert 100_000 <= _read(nodes, "activations") <= 100_100
    assert _read(nodes, "items") <= 200
    assert done["Execution Time"] < 3000


def test_the_least_useful_items_come_from_so_many_candidates(grown: Server) -> None:
    done, nodes = _plan(grown, "least_useful_items")
    assert 4900 <= _read(nodes, "items") <= 5000
    assert 4900 * 7 <= _read(nodes, "activations") <= 5000 * 7
    assert not [node for node in nodes if node["Node Type"] == "Seq Scan" and node["Relation Name"] == "items"]
    assert done["Execution Time"] < 3000


def test_sizes_read_no_table(grown: Server) -> None:
    _, nodes = _plan(grown, "sizes")
    assert {node["Relation Name"] for node in nodes if "Relation Name" in node} == {"pg_class", "migrations"}
    assert _read(nodes, "migrations") <= 1
