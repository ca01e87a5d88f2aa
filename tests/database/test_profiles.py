"""Search profiles: who sets them, what they may hold, and that the next search follows."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from psycopg.types.json import Jsonb

from infra.local.postgres import Postgres
from tests.database.support import Caller, Org, Refused, Server, attempt, ids, one_hot, search, serve, write_one
from tests.support import Database, clone

BUILT_IN = ["documents", "injection", "middleware", "user_search", "vector_metadata"]
FUNCTIONS: dict[str, dict[str, Any]] = {
    "list_profiles": {},
    "get_profile": {"name": "user_search"},
    "put_profile": {"name": "user_search", "knobs": {"high": 0.9}},
    "delete_profile": {"name": "user_search"},
}


@pytest.fixture(scope="module")
def shared(cluster: Postgres, template_database: Database) -> Iterator[Server]:
    """A database for functions that store nothing."""
    with clone(cluster, template_database.name) as copy, serve(copy) as connections:
        yield connections


def put(org: Org, name: str = "user_search", caller: Caller | None = None, **knobs: Any) -> dict[str, Any]:
    """The profile after its knobs were set."""
    answer = org.server.call("put_profile", caller or org.owner, {"name": name, "knobs": knobs})
    assert isinstance(answer, dict)
    return answer


def get(org: Org, name: str = "user_search") -> dict[str, Any]:
    answer = org.server.call("get_profile", org.owner, {"name": name})
    assert isinstance(answer, dict)
    return answer


def names(org: Org) -> list[str]:
    return [profile["name"] for profile in org.server.call("list_profiles", org.owner)["profiles"]]


# What is built in


def test_every_knob_is_defined_and_has_a_built_in_value(shared: Server) -> None:
    defined = shared.rows("select knob from engine.knob_definitions()")
    assert len(defined) == len(set(defined))
    assert set(defined) == set(shared.value("select engine.default_knobs()")) - {"modes"}
    assert set(defined) >= {
        "keyword_weight", "vector_weight", "metadata_weight", "keyword_scale", "length_normalisation",
        "message_length_normalisation", "message_keyword_scale", "vector_threshold", "fused_floor", "keyword_only_cap",
        "high", "standard", "strength_low", "strength_high", "mmr_lambda", "neighbour_previous", "neighbour_next",
        "neighbour_two_away",
        "author_boost", "date_boost", "conversation_boost", "question_turn_share", "when_boost", "candidates", "fusion",
        "exhaustive",
    }  # fmt: skip


@pytest.mark.parametrize("name", [None, *BUILT_IN])
def test_what_is_built_in_is_valid(shared: Server, name: str | None) -> None:
    """Nothing may be built in that nobody could set."""
    knobs = shared.value("select coalesce(engine.profile_knobs(null, %s), engine.default_knobs())", name)
    assert shared.value("select engine.knob_problem(%s, engine.default_knobs())", Jsonb(knobs)) is None


def test_the_built_in_profiles(org: Org) -> None:
    listed = org.server.call("list_profiles", org.owner)["profiles"]
    assert [profile["name"] for profile in listed] == BUILT_IN
    for profile in listed:
        assert (profile["built_in"], profile["own"], profile["updated_at"]) == (True, False, None)
        assert profile["description"]
        assert get(org, profile["name"])["own"] is None
    by_meaning = get(org, "vector_metadata")["knobs"]
    weights = [by_meaning[f"{leg}_weight"] for leg in ("keyword", "vector", "metadata")]
    assert weights == [0, 0.7, 0.3]


def test_a_search_takes_each_of_them(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "We retry with backoff.", one_hot(1), title="Retries", tags=["http"])
    for name in BUILT_IN:
        for vector in (None, one_hot(1)):
            assert ids(search(server, org.owner, "retries", vector, profile=name)) == [item], (name, vector)
    with pytest.raises(Refused, match="422 unknown_profile"):
        search(server, org.owner, "retries", profile="nothing")


# Who may


@pytest.mark.parametrize("name", FUNCTIONS)
def test_owners_and_admins_alone(server: Server, org: Org, name: str) -> None:
    for caller in (org.owner, org.member("admin")):
        assert server.call(name, caller, FUNCTIONS[name])
    others = [org.member(role) for role in ("solutions_engineer", "project_manager", "member")]
    for caller in [*others, org.agent("scribe"), {**org.owner, "agent": org.agent("of-the-owner")["agent"]}]:
        with pytest.raises(Refused, match="403 forbidden"):
            server.call(name, caller, FUNCTIONS[name])
    with pytest.raises(Refused, match="403 caller_unknown"):
        server.call(name, {"org": org.id, "user": str(uuid4()), "role": "owner"}, FUNCTIONS[name])


def test_the_system_names_the_org(server: Server, org: Org) -> None:
    other = Org(server, "other")
    org.system("put_profile", {"name": "user_search", "knobs": {"high": 0.9}})
    assert get(org)["own"] == {"high": 0.9}
    assert get(other)["own"] is None
    with pytest.raises(Refused, match="422 org_missing"):
        server.call("get_profile", None, {"name": "user_search"})


def test_an_orgs_profiles_are_its_own(server: Server, org: Org) -> None:
    """P4: whatever a request names."""
    other = Org(server, "other")
    item = write_one(server, other.owner, "We retry with backoff.", one_hot(1))
    server.call("put_profile", org.owner, {"org": "other", "name": "user_search", "knobs": {"fused_floor": 1}})
    put(org, "ours", high=0.9)

    assert get(other)["own"] is None
    assert ids(search(server, other.owner, "retry", one_hot(1))) == [item]
    assert names(other) == BUILT_IN
    for name in ("get_profile", "delete_profile"):
        with pytest.raises(Refused, match="404 unknown_profile"):
            server.call(name, other.owner, {"name": "ours"})
    with pytest.raises(Refused, match="422 unknown_profile"):
        search(server, other.owner, "retry", profile="ours")


# What they may hold


def errors(org: Org, knobs: Any, name: str = "user_search") -> dict[str, str]:
    """What is wrong with knobs, by field; nothing is stored then."""
    refused = attempt(org.server, "put_profile", org.owner, {"name": name, "knobs": knobs})
    if not isinstance(refused, Refused):
        return {}
    assert (refused.status, refused.code) == (422, "invalid_knobs")
    found = {error["field"].removeprefix("knobs."): error["message"] for error in refused.members["errors"]}
    assert all(f"{field}: {message}" in refused.message for field, message in found.items())
    assert get(org, name)["own"] is None
    return found


FRACTION = "must be a number from 0 to 1"


@pytest.mark.parametrize(
    ("knobs", "wrong"),
    [
        ({"keyword_wieght": 0.5}, {"keyword_wieght": "unknown knob"}),
        ({"": 1}, {"": "unknown knob"}),
        ({"high": "0.5"}, {"high": FRACTION}),
        ({"high": None}, {"high": FRACTION}),
        ({"high": True}, {"high": FRACTION}),
        ({"high": [0.5]}, {"high": FRACTION}),
        ({"high": {"a": 1}}, {"high": FRACTION}),
        ({"high": 1.01}, {"high": FRACTION}),
        ({"high": -0.01}, {"high": FRACTION}),
        ({"vector_weight": 10**200}, {"vector_weight": FRACTION}),
        ({"keyword_scale": 0}, {"keyword_scale": "must be a number from 0.1 to 1000"}),
        ({"candidates": 0}, {"candidates": "must be a whole number from 1 to 500"}),
        ({"candidates": 30.5}, {"candidates": "must be a whole number from 1 to 500"}),
        ({"candidates": 501}, {"candidates": "must be a whole number from 1 to 500"}),
        ({"exhaustive": 1}, {"exhaustive": "must be true or false"}),
        ({"fusion": "sum"}, {"fusion": "must be one of weighted, rrf"}),
        ({"fusion": 1}, {"fusion": "must be one of weighted, rrf"}),
        ({"standard": 0.6, "high": 0.6}, {"standard": "must be less than high"}),
        ({"standard": 0.99}, {"standard": "must be less than high"}),
        ({"keyword_weight": 0, "vector_weight": 0}, {"keyword_weight": "must not be 0 where vector_weight and"}),
        ({"keyword_weight": 1e-9, "vector_weight": 0}, {"keyword_weight": "must not be 0 where vector_weight and"}),
        ({"modes": 1}, {"modes": "must be an object"}),
        ({"modes": None}, {"modes": "must be an object"}),
        ({"modes": {"fuzzy": {}}}, {"modes.fuzzy": "unknown mode"}),
        ({"modes": {"lexical": 1}}, {"modes.lexical": "must be an object"}),
        ({"modes": {"lexical": {"high": 2}}}, {"modes.lexical.high": FRACTION}),
        ({"modes": {"lexical": {"low": 1}}}, {"modes.lexical.low": "unknown knob"}),
        ({"modes": {"lexical": {"modes": {}}}}, {"modes.lexical.modes": "unknown knob"}),
        ({"modes": {"vector": {"standard": 0.99}}}, {"modes.vector.standard": "must be less than high"}),
        ({"strength_low": 0.6, "strength_high": 0.5}, {"strength_low": "must not be more than strength_high"}),
        ({"strength_high": 0.1}, {"strength_low": "must not be more than strength_high"}),
        (
            {"modes": {"lexical": {"keyword_weight": 0, "vector_weight": 0}}},
            {"modes.lexical.keyword_weight": "must not be 0 where vector_weight and"},
        ),
        ({"high": 2, "standard": 2, "nothing": 0}, {"high": FRACTION, "standard": FRACTION, "nothing": "unknown knob"}),
    ],
)  # fmt: skip
def test_a_bad_value_is_named(org: Org, knobs: dict[str, Any], wrong: dict[str, str]) -> None:
    found = errors(org, knobs)
    assert found.keys() == wrong.keys()
    for field, message in wrong.items():
        assert found[field].startswith(message)


def test_many_errors_are_told_up_to_a_limit(org: Org) -> None:
    assert len(errors(org, {f"unknown_{number}": 0 for number in range(1000)})) == 20
    assert len(next(iter(errors(org, {"x" * 10_000: 0})))) == 200


def test_every_knob_takes_its_bounds_and_nothing_beyond(org: Org) -> None:
    definitions = get(org)["definitions"]
    for definition in definitions:
        knob, minimum, maximum = definition["knob"], definition["minimum"], definition["maximum"]
        assert definition["description"]
        if minimum is None:
            continue
        # beside values that fit with any other
        beside = {"high": 1, "standard": 0, "metadata_weight": 0.5, "strength_low": 0, "strength_high": 1}
        step = 1 if definition["kind"] == "integer" else 0.001
        for value in (minimum, maximum):
            if knob not in ("high", "standard"):
                put(org, "bounds", **{**beside, knob: value})
        for value in (minimum - step, maximum + step):
            with pytest.raises(Refused, match="422 invalid_knobs"):
                put(org, "bounds", **{**beside, knob: value})
    assert len(definitions) >= 25


@pytest.mark.parametrize("name", ["", "User", "1st", "a b", "ä", "x" * 64, "a-b", "../x"])
def test_a_bad_name_is_refused(org: Org, name: str) -> None:
    with pytest.raises(Refused, match="422 invalid_name"):
        put(org, name, high=0.9)
    with pytest.raises(Refused, match="404 unknown_profile"):
        org.server.call("get_profile", org.owner, {"name": name})


def test_numbers_are_kept_to_six_decimals(org: Org) -> None:
    """A smaller one means nothing, and the products of two of them would be errors."""
    profile = put(org, vector_weight=0.1 + 0.2, fused_floor=5e-324, modes={"lexical": {"high": 0.987654321}})
    assert profile["own"] == {"vector_weight": 0.3, "fused_floor": 0, "modes": {"lexical": {"high": 0.987654}}}


# Setting and resetting


def test_setting_replaces_what_was_set(org: Org) -> None:
    first = put(org, high=0.9, modes={"lexical": {"high": 0.8}})
    assert first["own"] == {"high": 0.9, "modes": {"lexical": {"high": 0.8}}}
    assert (first["knobs"]["high"], first["knobs"]["modes"]["lexical"]["high"]) == (0.9, 0.8)
    assert first["updated_at"]

    second = put(org, mmr_lambda=0.5)
    assert second["own"] == {"mmr_lambda": 0.5}
    assert second["knobs"] == get(org, "injection")["knobs"] | {"mmr_lambda": 0.5}
    listed = {profile["name"]: profile["own"] for profile in org.server.call("list_profiles", org.owner)["profiles"]}
    assert [name for name, own in listed.items() if own] == ["user_search"]


def test_resetting_goes_back_to_what_is_built_in(org: Org) -> None:
    before = get(org, "vector_metadata")
    put(org, "vector_metadata", vector_weight=1)
    for _ in range(2):
        answer = org.server.call("delete_profile", org.owner, {"name": "vector_metadata"})
        assert answer == {"name": "vector_metadata", "built_in": True}
        assert get(org, "vector_metadata") == before


def test_an_org_makes_profiles_of_its_own(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "We retry with backoff.", one_hot(1))
    profile = put(org, "support", keyword_weight=0, vector_weight=1)
    assert (profile["built_in"], profile["description"]) == (False, None)
    assert names(org) == sorted([*BUILT_IN, "support"])
    [found] = search(server, org.owner, "retry", one_hot(1), profile="support")["results"]
    assert found["id"] == item

    assert server.call("delete_profile", org.owner, {"name": "support"}) == {"name": "support", "built_in": False}
    assert names(org) == BUILT_IN
    with pytest.raises(Refused, match="404 unknown_profile"):
        server.call("delete_profile", org.owner, {"name": "support"})


def test_an_installation_may_set_what_all_orgs_start_from(server: Server, org: Org) -> None:
    server.rows("""update almagest.search_profiles set knobs = '{"high": 0.9, "modes": {"lexical": {"high": 0.8}}}'
        where org_id is null and name = 'user_search'""")
    assert get(org)["knobs"]["high"] == 0.9
    knobs = put(org, modes={"lexical": {"standard": 0.1}, "vector": {"standard": 0.2}})["knobs"]
    assert knobs["high"] == 0.9
    assert knobs["modes"] == {"lexical": {"high": 0.8, "standard": 0.1}, "vector": {"standard": 0.2}}


def test_changes_are_in_the_audit_log(server: Server, org: Org) -> None:
    admin = org.member("admin")
    put(org, caller=admin, high=0.9)
    org.system("delete_profile", {"name": "user_search"})
    org.system("delete_profile", {"name": "user_search"})  # nothing to take out any more

    logged = server.rows(
        "select action, name, actor_user_id::text, detail from almagest.audit_log where org_id = %s order by id", org.id
    )
    detail = {"knobs": {"high": 0.9}}
    assert logged == [
        ("profile_set", "user_search", admin["user"], detail),
        ("profile_reset", "user_search", None, detail),
    ]


# The next search follows


def test_a_change_acts_on_the_next_search(server: Server, org: Org) -> None:
    """On connections that have searched before, too."""
    item = write_one(server, org.owner, "We retry with backoff.", one_hot(1, 2))

    def found() -> list[str]:
        return ids(search(server, org.owner, "retry", one_hot(1)))

    with server.another() as other:
        for _ in range(3):
            assert found() == ids(search(other, org.owner, "retry", one_hot(1))) == [item]
            put(org, fused_floor=1)
            assert found() == ids(search(other, org.owner, "retry", one_hot(1))) == []
            server.call("delete_profile", org.owner, {"name": "user_search"})


def test_weights_decide_what_ranks_first(server: Server, org: Org) -> None:
    words = write_one(server, org.owner, "backoff backoff backoff", one_hot(5))
    meaning = write_one(server, org.owner, "waiting before the next try, and backoff", one_hot(1))
    write_one(server, org.owner, "something else", one_hot(9))
    put(org, keyword_weight=1, vector_weight=0)
    assert ids(search(server, org.owner, "backoff", one_hot(1)))[:2] == [words, meaning]
    put(org, keyword_weight=0, vector_weight=1)
    assert ids(search(server, org.owner, "backoff", one_hot(1)))[0] == meaning


def test_strength_counts_within_the_range_of_the_profile(server: Server, org: Org) -> None:
    write_one(server, org.owner, "We retry with backoff.", one_hot(1))
    for low in (0, 0.6, 1):
        put(org, strength_low=low)
        [result] = search(server, org.owner, "retry", one_hot(1))["results"]
        scores = result["scores"]
        expected = scores["hybrid"] * (low + (1 - low) * scores["strength"])
        assert scores["final"] == pytest.approx(expected, abs=2e-4)


def test_a_mode_has_knobs_of_its_own(server: Server, org: Org) -> None:
    item = write_one(server, org.owner, "We retry with backoff.", one_hot(1))
    put(org, modes={"lexical": {"fused_floor": 1}})
    assert ids(search(server, org.owner, "retry")) == []
    assert ids(search(server, org.owner, "retry", one_hot(1))) == [item]
    put(org, fused_floor=1, modes={"lexical": {"fused_floor": 0}})
    assert ids(search(server, org.owner, "retry")) == [item]
    assert ids(search(server, org.owner, "retry", one_hot(1))) == []


@pytest.mark.parametrize("weights", [(0, 1, 0), (1, 0, 0), (0, 0.7, 0.3), (0.7, 0, 0.3), (0, 0, 1)])
def test_a_leg_that_stands_alone_answers_whatever_its_weight(
    server: Server, org: Org, weights: tuple[float, float, float]
) -> None:
    """No profile makes a degraded search come back empty."""
    item = write_one(server, org.owner, "We retry with backoff.", one_hot(1), title="How we retry")
    put(org, keyword_weight=weights[0], vector_weight=weights[1], metadata_weight=weights[2])
    lexical = search(server, org.owner, "retry")
    vector = search(server, org.owner, "of the", one_hot(1))
    assert (lexical["mode"], ids(lexical)) == ("lexical", [item])
    assert (vector["mode"], ids(vector)) == ("vector", [item])


def hybrids(answer: dict[str, Any]) -> dict[str, float]:
    """The fused score of each result, before strength."""
    return {result["id"]: result["scores"]["hybrid"] for result in answer["results"]}


def test_ranks_are_given_by_what_found_a_candidate(server: Server, org: Org) -> None:
    """What holds none of the words, or means something else, has no place in that ranking, however few there are."""
    both = write_one(server, org.owner, "turtles swim", one_hot(1))
    words = write_one(server, org.owner, "many of the turtles swim in the sea by night", one_hot(9))
    meaning = write_one(server, org.owner, "tortoises walk", one_hot(1, 2))
    put(org, fusion="rrf")

    assert hybrids(search(server, org.owner, "turtles", one_hot(1))) == pytest.approx(
        {both: 1, words: 0.7 * 61 / 62, meaning: 0.3 * 61 / 62}, abs=1e-4
    )
    assert hybrids(search(server, org.owner, "zzyzx", one_hot(1, 2))) == pytest.approx(
        {meaning: 0.3, both: 0.3 * 61 / 62}, abs=1e-4
    )
    assert hybrids(search(server, org.owner, "night", one_hot(7))) == pytest.approx({words: 0.7}, abs=1e-4)
    put(org, fusion="rrf", vector_threshold=0.8)
    assert meaning not in hybrids(search(server, org.owner, "turtles", one_hot(1)))


def test_attributes_are_a_ranking_of_their_own(server: Server, org: Org) -> None:
    text = write_one(server, org.owner, "turtles swim", one_hot(1))
    titled = write_one(
        server, org.owner, "they swim in the sea with other turtles by night", one_hot(1), title="Turtles"
    )

    put(org, fusion="rrf", keyword_weight=0.5, vector_weight=0, metadata_weight=0.5)
    found = hybrids(search(server, org.owner, "turtles", one_hot(1)))
    assert found[titled] > 0.98
    assert found[text] == pytest.approx(0.5, abs=0.01)
    put(org, fusion="rrf", keyword_weight=0, vector_weight=0, metadata_weight=1)
    assert hybrids(search(server, org.owner, "turtles", one_hot(1))) == pytest.approx({titled: 1})


def test_equal_scores_have_equal_ranks(server: Server, org: Org) -> None:
    items = [write_one(server, org.owner, f"turtles n{n}x", one_hot(1)) for n in range(3)]
    put(org, fusion="rrf", keyword_weight=0.5, vector_weight=0.5)
    assert hybrids(search(server, org.owner, "turtles", one_hot(1))) == pytest.approx(dict.fromkeys(items, 1))


@pytest.mark.parametrize("mode", ["lexical", "substring", "vector"])
@pytest.mark.parametrize("everywhere", [True, False])
def test_no_weights_leave_a_degraded_search_without_an_answer(
    server: Server, org: Org, mode: str, everywhere: bool
) -> None:
    item = write_one(server, org.owner, "turtles swim -> there", one_hot(1))
    knobs = {"keyword_weight": 0, "vector_weight": 0, "metadata_weight": 1}
    put(org, **(knobs if everywhere else {"modes": {mode: knobs}}))
    query, vector, leg = {
        "lexical": ("turtles", None, "keyword"), "substring": ("->", None, "keyword"),
        "vector": ("tortoises", one_hot(1), "vector"),
    }[mode]  # fmt: skip
    answer = search(server, org.owner, query, vector, legs=[leg])
    assert (answer["mode"], ids(answer)) == (mode, [item])


def test_weights_that_became_all_0_leave_an_answer_by_one_leg(server: Server, org: Org) -> None:
    """As when an installation takes back the weight that an org's own knobs were laid over."""
    item = write_one(server, org.owner, "turtles swim", one_hot(1))
    put(org, keyword_weight=0, vector_weight=0, metadata_weight=1)
    server.rows(
        "update almagest.search_profiles set knobs = knobs - 'metadata_weight' where org_id = %s", org.id
    )  # whose built-in value is 0
    assert ids(search(server, org.owner, "turtles")) == [item]


@pytest.mark.parametrize(
    ("name", "query", "named"),
    [
        ("Anna", "what did Anna's crew say of turtles?", True),
        ("scout-2", "turtles of scout-2", True),
        ("scout-2", "turtles of scout 2", True),
        ("scout-2", "turtles of scout", False),
        ("Jean-Luc", "did jean-luc see turtles", True),
        ("build_bot", "(build_bot) turtles", True),
        ("O'Neil", "O\u2019Neil: turtles", True),
        ("d.vader", "turtles by d.vader", True),
        ("Zoë", "turtles Zoe saw", True),
        ("Zoe", "turtles ZOË saw", True),
        ("Ann", "turtles Anna saw", False),
        ("...", "turtles ... there", False),
    ],
)
def test_who_said_it_is_named_whatever_signs_the_name_has(
    server: Server, org: Org, name: str, query: str, named: bool
) -> None:
    write_one(server, org.owner, "turtles swim", one_hot(1), agent_name=name)
    [candidate] = search(server, org.owner, query, one_hot(1), explain=True)["explain"]["candidates"]
    assert candidate.get("boosts", {}).get("author") == (0.08 if named else None)


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("candidates", 1.0000001), ("candidates", 500.0000004), ("candidates", 0.9999999), ("keyword_scale", 0.0999999),
        ("keyword_scale", 0.09999996), ("high", 1.0000001), ("fused_floor", -5e-324),
    ],
)  # fmt: skip
def test_limits_are_those_of_the_value_that_was_given(org: Org, knob: str, value: float) -> None:
    """Not of what is kept of it."""
    assert errors(org, {knob: value})[knob].startswith("must be a ")
    assert errors(org, {"modes": {"lexical": {knob: value}}})[f"modes.lexical.{knob}"].startswith("must be a ")


def test_conflicts_are_those_of_the_values_that_are_kept(org: Org) -> None:
    assert errors(org, {"high": 0.6, "standard": 0.5999999}) == {"standard": "must be less than high"}
    assert put(org, strength_low=0.6000001, strength_high=0.6)["own"] == {"strength_low": 0.6, "strength_high": 0.6}


def test_a_request_is_told_which_field_names_no_profile(server: Server, org: Org) -> None:
    refused = attempt(server, "search", org.owner, {"query": "turtles", "profile": "nothing"})
    assert (refused.status, refused.code) == (422, "unknown_profile")
    assert refused.members["errors"] == [{"field": "profile", "message": "must be the name of a search profile"}]
    refused = attempt(server, "put_profile", org.owner, {"name": "No-Name", "knobs": {}})
    assert (refused.status, refused.code) == (422, "invalid_name")
    assert [error["field"] for error in refused.members["errors"]] == ["name"]
