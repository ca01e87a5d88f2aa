"""R10: an index job that is killed half way, as Lambda kills one at the end of its time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from almagest.database.queue import Queue
from almagest.database.session import connect
from almagest.operations.index_pending import index_pending
from tests.integration.conftest import Team

JOB = """
from almagest.handlers import index
from tests.edge import Context
index.handler({}, Context(60_000))
"""
SECONDS = 30


def test_its_lease_ends_and_another_goes_on(team: Team) -> None:
    team.rows("update almagest.items set index_status = 'search_ready' where index_status <> 'search_ready'")
    written = team.remember("A sentence about otters that fills a chunk of its own. " * 10_000)
    assert written["index_status"] == "text_ready"
    look = "select index_status, lease_owner from almagest.items where id = %s"

    job = subprocess.Popen([sys.executable, "-c", JOB], env=environment(team), stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: team.rows(look, written["id"])[0][0] == "indexing")
    finally:
        job.send_signal(signal.SIGKILL)
        job.wait()

    [(status, dead)] = team.rows(look, written["id"])
    assert (status, dead is not None) == ("indexing", True)
    assert team.ask("ann", "GET", "/v1/write/index").body == {"pending": 0, "indexing": 1, "failed": 0}
    assert len(team.find("otters")) == 1  # by its words, all the while
    assert index(team) == {"indexed": 0, "stale": 0, "failed": 0}  # the lease still holds

    team.rows("update almagest.items set lease_expires_at = now(), index_after = now() where id = %s", written["id"])
    team.rows(
        "delete from almagest.chunks where item_id = %s and position > 20", written["id"]
    )  # else it takes a minute
    team.rows("update almagest.items set content = left(content, 20000) where id = %s", written["id"])
    assert index(team) == {"indexed": 1, "stale": 0, "failed": 0}
    assert team.rows(look, written["id"]) == [("search_ready", None)]
    without = "select count(*) from almagest.chunks as k left join almagest.embeddings as e on e.chunk_id = k.id"
    assert team.rows(f"{without} where k.item_id = %s and e.chunk_id is null", written["id"]) == [0]


def index(team: Team) -> dict[str, int]:
    with connect(team.runtime.settings, autocommit=True) as connection:
        return index_pending(team.runtime, Queue(connection), 60)


def environment(team: Team) -> dict[str, str]:
    settings = team.runtime.settings
    assert settings.supabase_url
    assert settings.supabase_key
    assert settings.database_url
    return os.environ | {
        "SUPABASE_URL": settings.supabase_url,
        "SUPABASE_SECRET_KEY": settings.supabase_key.get_secret_value(),
        "DATABASE_URL": settings.database_url.get_secret_value(),
    }


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)
