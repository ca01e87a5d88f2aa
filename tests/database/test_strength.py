"""How far an item is to be trusted: the formula's properties, and what confirming, editing and evergreen do to it."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from infra.local.postgres import Postgres
from tests.database.support import (
    Caller,
    Org,
    Refused,
    Server,
    chunks_of,
    digest,
    ids,
    one_hot,
    search,
    serve,
    unique_key,
    write_one,
)
from tests.support import Database, clone

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
# Neutral: what a new item has.
SIGNALS = {
    "recency": 1.0,
    "frequency": 0.0,
    "diversity": 0.0,
    "centrality": 0.0,
    "confidence": 0.5,
    "source_trust": 0.5,
}
CLOSE = 1e-6  # the signals are stored in single precision

fraction = st.floats(0, 1, width=32)
maybe = st.none() | fraction
starting = st.none() | st.floats(0.0625, 1, width=32)
age = st.floats(-400, 40_000)  # days; a clock may be behind
signals = st.fixed_dictionaries(dict.fromkeys(SIGNALS, maybe))
floors = st.none() | st.floats(0.0625, 1, width=32)

# A connection lasts for all examples.
shared_server = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)


@pytest.fixture(scope="module")
def shared(cluster: Postgres, template_database: Database) -> Iterator[Server]:
    """A database for functions that store nothing."""
    with clone(cluster, template_database.name) as copy, serve(copy) as connections:
        yield connections


def strength(
    server: Server, days: float | None = 0, *, floor: float | None = None, evergreen: bool | None = False, **given: Any
) -> float:
    """The strength of an item that was validated so many days ago."""
    validated = None if days is None else (NOW - timedelta(days=days)).isoformat()
    value = server.value(
        "select engine.strength(jsonb_populate_record(null::almagest.strength_signals, %s), %s::real, %s, %s)",
        *(Jsonb({"validated_at": validated, **given}), floor, evergreen, NOW),
    )
    assert isinstance(value, float)
    return value


def retention(server: Server, days: float) -> float:
    """What so many days leave of a strength."""
    kept: float = server.value("select engine.retention(%s, %s)", NOW - timedelta(days=days), NOW)
    return kept


@shared_server
@given(signals, starting, age, floors, st.none() | st.booleans())
def test_it_is_bounded(
    shared: Server, given: dict[str, Any], start: float | None, days: float, floor: float | None, evergreen: bool | None
) -> None:
    value = strength(shared, days, floor=floor, evergreen=evergreen, starting_strength=start, **given)
    assert 0.05 <= value <= 1


@pytest.mark.parametrize("signal", [*SIGNALS, "starting_strength"])
@shared_server
@given(st.data())
def test_it_grows_with_each_signal(shared: Server, signal: str, data: st.DataObject) -> None:
    given, start, days = data.draw(signals), data.draw(starting), data.draw(age)
    domain = st.floats(0.0625, 1, width=32) if signal == "starting_strength" else fraction
    low, high = sorted((data.draw(domain), data.draw(domain)))
    given = {"starting_strength": start, **given}
    assert strength(shared, days, **{**given, signal: low}) <= strength(shared, days, **{**given, signal: high})


@pytest.mark.parametrize("signal", [*SIGNALS, "starting_strength"])
def test_each_signal_counts(shared: Server, signal: str) -> None:
    assert strength(shared, **{**SIGNALS, signal: 0.4}) < strength(shared, **{**SIGNALS, signal: 0.6})


def test_the_signals_are_those_that_are_stored(shared: Server) -> None:
    """Seven: these, and when the item was last validated."""
    columns = shared.rows(
        "select attname::text from pg_attribute where attrelid = 'almagest.strength_signals'::regclass and attnum > 0"
        " and not attisdropped and attname not in ('item_id', 'org_id', 'user_id', 'starting_strength', 'updated_at')"
    )
    assert set(columns) == {*SIGNALS, "validated_at"}


@shared_server
@given(signals, starting, age, age)
def test_it_falls_with_age(shared: Server, given: dict[str, Any], start: float | None, one: float, two: float) -> None:
    younger, older = sorted((one, two))
    given = {"starting_strength": start, **given}
    assert strength(shared, older, **given) <= strength(shared, younger, **given)


@shared_server
@given(st.floats(31, 10_000), st.floats(1, 1000))
def test_it_falls_all_the_time(shared: Server, days: float, more: float) -> None:
    assert retention(shared, days + more) < retention(shared, days) < 1


@shared_server
@given(signals, starting, st.floats(-400, 30))
def test_nothing_is_lost_in_the_first_thirty_days(
    shared: Server, given: dict[str, Any], start: float | None, days: float
) -> None:
    given = {"starting_strength": start, **given}
    assert strength(shared, days, **given) == strength(shared, 0, **given)


@shared_server
@given(st.floats(31, 10_000))
def test_it_falls_fast_and_then_keeps_a_long_tail(shared: Server, days: float) -> None:
    """Always above the bare exponential, and more so the longer it lasts; below the bare power law."""
    months = days / 30 - 1
    assert math.exp(-months) < retention(shared, days) < (1 + months) ** -0.2


def test_after_two_years_the_tail_is_all_that_is_left(shared: Server) -> None:
    two_years = retention(shared, 730)
    assert two_years > 0.25
    assert two_years > 1e6 * math.exp(-(730 - 30) / 30)
    # steep at first, hardly at all later
    assert retention(shared, 30) - retention(shared, 60) > 0.3
    assert two_years - retention(shared, 1095) < 0.03


@pytest.mark.parametrize(
    ("days", "left"), [(0, 1), (30, 1), (60, 0.62), (30 + 183, 0.35), (760, 0.26), (3680, 0.19), (400_000, 0.08)]
)
def test_it_keeps_what_its_description_says(shared: Server, days: float, left: float) -> None:
    assert retention(shared, days) == pytest.approx(left, abs=0.016)


def test_a_validation_of_any_time_is_taken(shared: Server) -> None:
    for at in ("0001-01-01", "9999-01-01", None):
        kept = shared.value("select engine.retention(%s::timestamptz, %s)", at, NOW)
        assert 0 <= kept <= 1, at


@shared_server
@given(st.floats(0.0625, 1, width=32))
def test_a_new_item_has_the_strength_that_it_starts_with(shared: Server, start: float) -> None:
    assert strength(shared, starting_strength=start, **SIGNALS) == pytest.approx(start, abs=CLOSE)


@shared_server
@given(signals, starting, age)
def test_a_null_signal_is_a_neutral_one(
    shared: Server, given: dict[str, Any], start: float | None, days: float
) -> None:
    filled = {name: SIGNALS[name] if value is None else value for name, value in given.items()}
    neutral = strength(shared, days, starting_strength=0.5 if start is None else start, **filled)
    assert strength(shared, days, starting_strength=start, **given) == pytest.approx(neutral, abs=CLOSE)


def test_without_signals_it_is_neutral(shared: Server) -> None:
    query = "select engine.strength(null, null, null, now())"
    assert shared.value(query) == pytest.approx(0.5)
    assert strength(shared, None, **SIGNALS) == pytest.approx(0.5)


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("start", [0.1, 0.5, 0.9])
def test_no_signal_runs_the_show(shared: Server, signal: str, start: float) -> None:
    """Each changes the odds e-fold at the most."""

    def odds(value: float) -> float:
        return value / (1 - value)

    for extreme in (0, 1):
        moved = strength(shared, starting_strength=start, **{**SIGNALS, signal: extreme})
        assert abs(math.log(odds(moved) / odds(start))) <= 1 + CLOSE


@shared_server
@given(signals, starting, age, st.floats(0.0625, 1, width=32), st.booleans())
def test_floors_hold(
    shared: Server, given: dict[str, Any], start: float | None, days: float, floor: float, evergreen: bool
) -> None:
    given = {"starting_strength": start, **given}
    bare = strength(shared, days, **given)
    expected = max(bare, floor, 0.5 if evergreen else 0)
    assert strength(shared, days, floor=floor, evergreen=evergreen, **given) == expected


@shared_server
@given(fraction)
def test_confirming_takes_a_fifth_of_the_doubt_and_never_all(shared: Server, confidence: float) -> None:
    confirmed = shared.value("select engine.confirmed(%s::real)", confidence)
    assert confidence - CLOSE <= confirmed <= max(confidence, 0.95) + CLOSE
    if confidence < 0.9:
        assert 1 - confirmed == pytest.approx(0.8 * (1 - confidence), abs=CLOSE)


# In a search


def _age(server: Server, item: str, days: int) -> None:
    server.rows(
        "update almagest.strength_signals set validated_at = now() - make_interval(days => %s) where item_id = %s",
        *(days, item),
    )


def _strengths(server: Server, caller: Caller, query: str) -> dict[str, float]:
    return {result["id"]: result["scores"]["strength"] for result in search(server, caller, query)["results"]}


def test_what_was_not_validated_for_long_ranks_below_its_like(server: Server, org: Org) -> None:
    old = write_one(server, org.owner, "The rate is ninety euros an hour.", one_hot(1))
    new = write_one(server, org.owner, "The rate is eighty euros an hour.", one_hot(2))
    _age(server, old, 400)
    answer = search(server, org.owner, "rate an hour")

    assert ids(answer) == [new, old]
    [first, second] = answer["results"]
    assert first["scores"]["hybrid"] == pytest.approx(second["scores"]["hybrid"], abs=1e-3)
    assert second["scores"]["strength"] == pytest.approx(0.5 * 0.299, abs=1e-3)


def test_protected_types_and_the_evergreen_do_not_fade(server: Server, org: Org) -> None:
    playbook = org.item("how to deploy, step by step", type="playbook")
    overview = org.item("how to deploy, an overview", evergreen=True)
    note = org.item("how to deploy, a note")
    for item in (playbook, overview, note):
        _age(server, item, 2000)

    strengths = _strengths(server, org.owner, "how to deploy")
    assert strengths[playbook] == strengths[overview] == pytest.approx(0.5)
    assert strengths[note] < 0.2
    server.rows("insert into almagest.item_types (org_id, name, strength_floor) values (%s, 'note', 0.9)", org.id)
    assert _strengths(server, org.owner, "how to deploy")[note] == pytest.approx(0.9)


# Confirming


def _validate(server: Server, caller: Caller, item: str, **fields: Any) -> Any:
    return server.call("validate_item", caller, {"id": item, "idempotency": unique_key(), **fields})


def test_a_confirmed_item_is_as_strong_as_a_new_one_and_more(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "We deploy on Tuesdays.")
    _age(server, item, 400)
    server.rows("update almagest.items set validated_at = now() - interval '400 days' where id = %s", item)
    faded = _strengths(server, org.owner, "deploy")[item]

    answer = _validate(server, org.owner, item)

    assert answer.keys() == {"id", "validated_at", "confidence", "strength"}
    assert answer["confidence"] == pytest.approx(0.6)
    assert faded < 0.2 < 0.5 < answer["strength"]
    assert _strengths(server, org.owner, "deploy")[item] == pytest.approx(answer["strength"], abs=1e-4)
    [stored] = server.rows(
        "select i.validated_at, s.validated_at, s.updated_at, i.version from almagest.items as i"
        " join almagest.strength_signals as s on s.item_id = i.id where i.id = %s",
        item,
    )
    assert stored[0] == stored[1] == stored[2] == datetime.fromisoformat(answer["validated_at"])
    assert stored[3] == 1
    assert server.call("get_item", org.owner, {"id": item})["validated_at"] == answer["validated_at"]


def test_confirming_again_and_again_never_makes_it_certain(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "We deploy on Tuesdays.")
    confidences = [_validate(server, org.owner, item)["confidence"] for _ in range(15)]

    assert confidences == sorted(confidences)
    assert confidences[-1] == confidences[-2] == pytest.approx(0.95)


def test_a_confirmation_is_in_the_audit_log(server: Server, org: Org) -> None:
    agent = org.agent("scribe")
    item = write_one(server, org.owner, "We deploy on Tuesdays.")
    _validate(server, agent, item)

    logged = server.rows(
        "select actor_agent_id::text from almagest.audit_log where item_id = %s and action = 'validated'", item
    )
    assert logged == [agent["agent"]]


def test_a_repeated_confirmation_counts_once(server: Server, org: Org) -> None:
    """W1."""
    item, other = (write_one(server, org.owner, text) for text in ("We deploy on Tuesdays.", "We rest on Sundays."))
    key = unique_key(item)
    first = _validate(server, org.owner, item, idempotency=key)

    assert _validate(server, org.owner, item, idempotency=key) == first
    assert server.call("validate_item", org.owner, {"id": item, "idempotency": key}) == first
    with pytest.raises(Refused, match="409 idempotency_conflict"):
        _validate(server, org.owner, other, idempotency={**key, "request_hash": digest("other")})
    assert server.value("select confidence from almagest.strength_signals where item_id = %s", item) == pytest.approx(
        0.6
    )


@pytest.mark.parametrize("state", ["archived", "revoked", "provisional"])
def test_only_what_is_active_is_confirmed(server: Server, org: Org, state: str) -> None:
    item = org.item("We deploy on Tuesdays.", state=state)
    with pytest.raises(Refused, match="409 wrong_state"):
        _validate(server, org.owner, item)


def test_whoever_sees_an_item_may_confirm_it(server: Server, org: Org) -> None:
    """Canon too, since nothing of what it says is changed."""
    member, agent = org.member(), org.agent("scribe")
    canon = org.item("always be kind", scope="workspace")
    private = write_one(server, member, "mine alone", private=True)
    for caller, item in ((member, canon), (agent, canon), (member, private)):
        assert _validate(server, caller, item)["id"] == item
    for stranger in (org.owner, agent):
        with pytest.raises(Refused, match="404 not_found"):
            _validate(server, stranger, private)


# Editing


def _edit(server: Server, caller: Caller, item: str, **changes: Any) -> Any:
    version = server.value("select version from almagest.items where id = %s", item)
    request = {"id": item, "version": version, "changes": changes, "idempotency": unique_key()}
    if text := changes.get("content"):
        request |= {"content_hash": digest(text), "chunks": chunks_of([text], [None])}
    return server.call("update_item", caller, request)


def test_what_is_written_anew_is_fresh(server: Server, org: Org) -> None:
    """And no more certain than before: somebody wrote it, nobody confirmed it."""
    item = write_one(server, org.owner, "The rate is ninety euros an hour.")
    _age(server, item, 400)
    _edit(server, org.owner, item, title="Rates")
    assert _strengths(server, org.owner, "rate")[item] < 0.2
    _edit(server, org.owner, item, content="The rate is eighty euros an hour.")
    assert _strengths(server, org.owner, "rate")[item] == pytest.approx(0.5)


def test_evergreen_is_for_owners_and_admins_where_an_item_is_shared(server: Server, org: Org) -> None:
    org.client("north")
    member, agent = org.member(clients=["north"]), org.agent("scribe", clients=["north"])
    shared_items = (write_one(server, member, "an overview"), write_one(server, member, "terms", client="north"))
    for item in shared_items:
        for caller in (member, agent):
            for wanted in (True, False):
                with pytest.raises(Refused, match="403 forbidden"):
                    _edit(server, caller, item, evergreen=wanted, title="Mine")
        assert server.value("select version from almagest.items where id = %s", item) == 1
        for manager in (org.owner, org.member("admin")):
            _edit(server, manager, item, evergreen=True)
            assert server.call("get_item", member, {"id": item})["evergreen"] is True
            _edit(server, manager, item, evergreen=False)
            assert server.call("get_item", member, {"id": item})["evergreen"] is False


def test_a_private_item_is_evergreen_as_its_owner_likes(server: Server, org: Org) -> None:
    member = org.member()
    item = write_one(server, member, "my voice guide", private=True)
    _edit(server, member, item, evergreen=True)

    assert server.call("get_item", member, {"id": item})["evergreen"] is True
    _age(server, item, 2000)
    assert _strengths(server, member, "voice guide")[item] == pytest.approx(0.5)
    with pytest.raises(Refused, match="404 not_found"):
        _edit(server, org.owner, item, evergreen=False)
