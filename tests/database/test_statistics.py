"""Statistics of large partitions: what counting gives, of each scope by itself, made again when it ages."""

from psycopg.types.json import Jsonb

from tests.database.support import Caller, Org, Server, ids, search, serve, write_one
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


def weights(server: Server, caller: Caller, *terms: str) -> dict[str, float]:
    """In how many of the caller's chunks each term stands, as searches take it."""
    [(known, documents)] = server.rows(
        "select q.terms, q.documents from engine.resolve_caller(%s) as c"
        " cross join lateral engine.weigh_terms(c, null, %s::text[], '{active}') as q",
        *(Jsonb(caller), list(terms)),
    )
    return dict(zip(known or [], documents or [], strict=True))


def test_what_is_hidden_does_not_decide_what_is_counted(server: Server, org: Org) -> None:
    """P6: of two words that a member sees in as many rows, one is frequent in what is hidden."""
    ben = org.member()
    org.client("north")
    mast = {word: write_one(server, org.owner, f"{word} docking mast one") for word in ("blimp", "zeppelin")}
    for number in range(30):
        write_one(server, org.owner, f"blimp {number} of my own", private=True)
        write_one(server, org.owner, f"blimp {number} of the client", client="north")
    assert refresh(server, 10, 20) == 1
    for number in range(6):
        for word in mast:
            write_one(server, org.owner, f"{word} number{number}x flies")
    assert weights(server, ben, "blimp", "zeppelin") == {"blimp": 7, "zeppelin": 7}
    scores = []
    for word in mast:
        [score] = [
            result["scores"] for result in search(server, ben, word, k=20)["results"] if result["id"] == mast[word]
        ]
        scores.append(score)
    assert scores[0] == scores[1]
    assert weights(server, org.owner, "blimp")["blimp"] == 60


def test_whoever_sees_several_scopes_has_the_sum_of_them(server: Server, org: Org) -> None:
    """Of what is frequent in all that they see; what is not is counted."""
    org.client("north")
    ben = org.member(clients=["north"])
    for number in range(8):
        write_one(server, org.owner, f"zebra {number}")
        write_one(server, org.owner, f"zebra {number} of the client", client="north")
        write_one(server, ben, f"zebra {number} at the river", private=True)
        write_one(server, org.owner, f"zebra {number} of mine", private=True)
    for client in ("north", None):
        write_one(server, org.owner, f"a lion, {client}", client=client)
    refresh(server)
    write_one(server, ben, "a lion and a zebra", private=True)
    assert weights(server, ben, "zebra", "lion") == {"zebra": 24, "lion": 3}
    assert weights(server, org.member(), "zebra", "lion") == {"zebra": 8, "lion": 1}


def test_a_term_is_frequent_in_a_hundredth_or_in_as_many_as_are_always_enough(server: Server) -> None:
    numbers = server.rows("select engine.frequent(n, 300) from unnest('{1,200,5000,30000,1000000}'::float8[]) as n")
    assert numbers == [2, 2, 50, 300, 300]
