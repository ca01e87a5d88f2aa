"""Statistics of large partitions: what counting gives, of each scope by itself, made again when it ages."""

from tests.database.support import Org, Server, ids, search, serve, write_one
from tests.support import Database


def refresh(server: Server, size: int = 4, frequent: int = 2) -> int:
    counted: int = server.value("select engine.refresh_statistics(%s, %s)", size, frequent)
    return counted


def fill(server: Server, org: Org, count: int, *, private: bool = False) -> None:
    for number in range(count):
        write_one(server, org.owner, f"zebra number {number} crossed the river", private=private)


def test_searches_answer_as_before(server: Server, org: Org) -> None:
    fill(server, org, 8)
    write_one(server, org.owner, "a lion slept by the river")
    queries = ("zebra river", "lion", "river crossed number", "7")
    before = [search(server, org.owner, query)["results"] for query in queries]
    assert refresh(server) == 1
    assert [search(server, org.owner, query)["results"] for query in queries] == before
    assert server.value("select trace ->> 'counted' from almagest.retrievals order by created_at desc limit 1") == (
        "statistics"
    )


def test_each_scope_is_counted_by_itself(server: Server, org: Org) -> None:
    fill(server, org, 6)
    fill(server, org, 5, private=True)
    write_one(server, org.owner, "a lion slept by the river")
    assert refresh(server) == 1
    rows = server.rows(
        "select user_id is null, documents from almagest.term_statistics where term = 'zebra' order by 1"
    )
    assert rows == [(False, 5), (True, 6)]
    assert server.value("select count(*) from almagest.term_statistics where term = 'lion'") == 0


def test_what_is_hidden_shows_in_no_score(server: Server, org: Org) -> None:
    """P6: another's rows, and a client's, count for nobody who may not see them."""
    member, other = org.member(), org.member()
    fill(server, org, 8)
    refresh(server)
    before = search(server, member, "zebra river")["results"]
    org.client("north")
    for number in range(8):
        write_one(server, other, f"zebra {number} at my river", private=True)
        write_one(server, org.owner, f"zebra {number} at the client's river", client="north")
    assert refresh(server) == 1
    assert search(server, member, "zebra river")["results"] == before


def test_counted_again_only_when_the_size_has_changed(server: Server, org: Org) -> None:
    fill(server, org, 6)
    assert [refresh(server), refresh(server)] == [1, 0]
    write_one(server, org.owner, "one more zebra")
    assert refresh(server) == 1
    assert server.value("select documents from almagest.partition_statistics") == 7


def test_what_has_become_small_has_none(server: Server, org: Org) -> None:
    fill(server, org, 6)
    refresh(server)
    assert refresh(server, size=100) == 0
    assert server.value("select count(*) from almagest.partition_statistics") == 0
    assert server.value("select count(*) from almagest.term_statistics") == 0


def test_rows_that_are_hidden_do_not_use_up_what_is_counted(database: Database) -> None:
    with serve(database) as own:
        own.rows("create or replace function engine.most_counted() returns int language sql immutable as 'select 3'")
        org = Org(own, "crowded")
        for number in range(5):
            write_one(own, org.owner, f"a gargoyle, number{number}x", private=True)
        ben = org.member()
        mine = write_one(own, ben, "my gargoyle", private=True)
        assert ids(search(own, ben, "gargoyle")) == [mine]
