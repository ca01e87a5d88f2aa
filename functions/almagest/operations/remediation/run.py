"""A remediation run: what a health run found is answered by actions, checked again, and told where it stays."""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg

from almagest import deadline
from almagest.operations.health.check import hub_key, perform
from almagest.operations.health.registry import CHECKS
from almagest.operations.health.run import record
from almagest.operations.jobs.errors import LeaseLost, OutOfTime, describe
from almagest.operations.remediation.action import WAITING, Action, Figures, Mending
from almagest.operations.remediation.answers import ANSWERS, Answer
from almagest.operations.remediation.kinds import kinds_found

if TYPE_CHECKING:
    from almagest.operations.jobs.job import Run

logger = logging.getLogger(__name__)

# After so many tries in vain an action is left alone until its check has passed, it has something of another kind to
# do, or a person asks for it.
TRIES = 3
# The most that one action takes, and what is kept back for the checks that follow.
ACTION_SECONDS = 300.0
RESERVE_SECONDS = 60.0

GIVEN_UP = (
    " What was tried three times in vain is not tried again until the check has passed or finds something new; once you"
    " have done something about it, `almagest jobs run remediation` tries it now."
)


def remediate(run: "Run") -> Figures:
    """Answer the latest health run that found something and has not been tried.

    By hand, one that has been tried is tried again, and so are actions that have been given up.

    Returns
    -------
    dict
        `health_run`, None where there is nothing to answer; how many checks are `mended` and how many are `left`;
        `checks`, each with its actions and how they ended; `open_hub_entries`.

    Raises
    ------
    Exception
        What the answer to a check raised, once all others are answered: the run has failed, and is tried again.
    """
    mending = Mending(run.runtime, run.connection)
    claimed = run.step("claim", lambda _: {"health_run": mending.remedy.claim(run.id, again=is_by_hand(run))})
    health_run = claimed["health_run"]
    answered: dict[str, Figures] = {}
    if health_run is not None:
        found = {check["name"] for check in mending.health.checks(health_run) if check["status"] != "ok"}
        answered = _answer_all(run, mending, health_run, [name for name in ANSWERS if name in found])
    statuses = [case["status"] for case in answered.values()]
    return {
        "health_run": health_run,
        "mended": statuses.count("ok"),
        "left": len(statuses) - statuses.count("ok"),
        "checks": answered,
        "open_hub_entries": mending.health.open_hub_entries(),
    }


def _answer_all(run: "Run", mending: Mending, health_run: int, checks: Sequence[str]) -> dict[str, Figures]:
    """Answer each check; one whose answer breaks off is not in the way of the others, and is told at the end."""
    answered: dict[str, Figures] = {}
    broken: list[Exception] = []
    for check in checks:
        try:
            answered[check] = _Case(run, mending, health_run, check).answer()
        except (LeaseLost, OutOfTime):
            raise
        except Exception as error:
            if run.connection.closed:
                raise
            logger.error("answer broke off", extra={"check": check, "error": describe(error)})
            run.leave_transaction()
            broken.append(error)
    if broken:
        raise broken[0]
    return answered


def is_by_hand(run: "Run") -> bool:
    """Whether a person asked for a run: Scheduler's times are whole seconds, a person's is the moment of asking."""
    return run.scheduled_for.microsecond != 0


class _Case:
    """One check that has not passed, and what is done about it."""

    def __init__(self, run: "Run", mending: Mending, health_run: int, check: str) -> None:
        self._run = run
        self._mending = mending
        self._health_run = health_run
        self._check = check
        self._answer: Answer = ANSWERS[check]

    def answer(self) -> Figures:
        """Try the actions that are left, make the check again, and tell people where it still does not pass."""
        done = self._try_all()
        states = {name: each["state"] for name, each in done.items() if each["state"]}
        given_up = any(each["given_up"] for each in done.values())
        checked: Figures | None = next((each["checked"] for each in reversed(done.values()) if each["checked"]), None)
        if not states:
            tries = max(each["tries"] for each in done.values())
            states = {"none": self._run.step(f"{self._check}.none", lambda _: self._leave(tries))["state"]}
        if checked is None:
            checked = self._run.step(f"{self._check}.check", lambda _: self._check_again())
        if checked["status"] != "ok":
            tried = "none" not in states
            self._run.step(f"{self._check}.hub", lambda _: self._tell(tried=tried, given_up=given_up))
        return {"status": checked["status"], "measured": checked["measured"], "actions": states}

    def _try_all(self) -> dict[str, Figures]:
        """What became of each action; where none has something to do, and none is given up, of another look."""
        done: dict[str, Figures] = {}
        for action in self._answer.actions:
            done[action.name] = each = self._step(action)
            if each["checked"] and each["checked"]["status"] == "ok":
                return done
        if not any(each["state"] or each["given_up"] for each in done.values()):
            done[_LOOK_AGAIN.name] = self._step(_LOOK_AGAIN)
        return done

    def _step(self, action: Action) -> Figures:
        return self._run.step(f"{self._check}.{action.name}", lambda _: self._do(action))

    def _do(self, action: Action) -> Figures:
        """Do an action, unless there is nothing to do for it or it has been given up, and keep how it ended.

        Returns
        -------
        dict
            `state`, None where it was not done; `tries`, in vain before; `given_up`, whether it is not tried again;
            `checked`, what the check found after it, for one that only the check can measure.
        """
        started = datetime.now(UTC)
        measure = action.measure
        before, error = self._limited(lambda: measure(self._mending)) if measure else ({}, None)
        if measure and not error and not _something(before):
            return {"state": None, "tries": 0, "given_up": False, "checked": None}
        kinds = [name for name, value in before.items() if value]
        tries = self._mending.remedy.tries_in_vain(self._check, action.name, kinds, self._run.id)
        if tries >= TRIES and not is_by_hand(self._run):
            return {"state": None, "tries": tries, "given_up": True, "checked": None}
        after: Figures = {}
        if not error:
            after, error = self._limited(lambda: _acted(action, self._mending))
        checked = None if measure else self._check_again()
        state = _state_of_check(checked, error) if checked else _state(before, after, error)
        self._record(action.name, tries, state, before, after | (checked or {}), error, started)
        in_vain = state in ("failed", "unchanged")
        return {"state": state, "tries": tries, "given_up": in_vain and tries + 1 >= TRIES, "checked": checked}

    def _limited(self, work: Callable[[], Figures]) -> tuple[Figures, str | None]:
        """Figures of some work that is ended when its time is over, and of what kind the error was that ended it.

        Raises
        ------
        Exception
            What it raised, where the connection is gone with it: then the run is over too.
        """
        seconds = max(1.0, min(ACTION_SECONDS, deadline.remaining(float("inf")) - RESERVE_SECONDS))
        try:
            self._limit(seconds)
            with deadline.limit(seconds):
                return work(), None
        except Exception as raised:
            if self._run.connection.closed:
                raise
            kind = _kind(raised)
            logger.error("remedy failed", extra={"check": self._check, "error": kind})
            return {}, kind
        finally:
            self._limit(None)

    def _limit(self, seconds: float | None) -> None:
        self._mending.health.limit(seconds)
        self._mending.remedy.limit(seconds)

    def _leave(self, tries: int) -> Figures:
        self._record("none", tries, "left", {"tries": tries}, {}, None, datetime.now(UTC))
        return {"state": "left"}

    def _record(
        self, action: str, tries: int, state: str, before: Figures, after: Figures, error: str | None, started: datetime
    ) -> None:
        self._mending.remedy.record(
            {
                "run_id": self._run.id,
                "health_run_id": self._health_run,
                "check_name": self._check,
                "action": action,
                "attempt": tries + 1,
                "state": state,
                "before": before,
                "after": after,
                "error": error,
                "started_at": started.isoformat(),
            }
        )

    def _check_again(self) -> Figures:
        return record(self._run, perform(CHECKS[self._check], self._run.runtime))

    def _tell(self, *, tried: bool, given_up: bool) -> Figures:
        """Open the check's entry in the Hub, or bring it up to date; a run that tried nothing is no try.

        What was found on a machine besides is shown there, and told to nobody else.
        """
        health = self._mending.health
        if not health.speaks(self._run.id):
            return {"told": False}
        [found] = [check for check in health.checks(self._run.id) if check["name"] == self._check]
        kinds = kinds_found(found["figures"])
        health.open_hub_entry(
            hub_key(self._check),
            "critical" if found["status"] == "failed" else "warning",
            {
                "title": self._answer.title,
                "found": found["sentence"],
                "tried": [self._told(each) for each in self._mending.remedy.tried(self._check)],
                "to_do": self._answer.advice(kinds) + (GIVEN_UP if given_up else ""),
                "figures": {
                    "check": self._check,
                    "run": self._run.id,
                    "kinds": kinds,
                    **{name: found[name] for name in ("status", "measured", "threshold", "unit")},
                },
            },
            tried=tried,
        )
        return {"told": True}

    def _told(self, tried: dict[str, Any]) -> dict[str, Any]:
        sentences = {action.name: action.sentence for action in (*self._answer.actions, _LOOK_AGAIN)}
        return {**tried, "what": sentences.get(tried["what"], tried["what"])}


def _acted(action: Action, mending: Mending) -> Figures:
    """What an action did, and what it is about after it."""
    done = action.act(mending)
    return {"done": done, **(action.measure(mending) if action.measure else {})}


def _state_of_check(checked: Figures, error: str | None) -> str:
    """How an action ended that only the check can measure."""
    return "failed" if error else "mended" if checked["status"] == "ok" else "unchanged"


def _state(before: Figures, after: Figures, error: str | None) -> str:
    """How an action ended: mended, what it is about is gone; left, some of it; unchanged, none of it; or failed.

    What it has begun and others end is left, however much there is of it.
    """
    if error:
        return "failed"
    if after["done"].get(WAITING):
        return "left"
    figures = {name: value for name, value in after.items() if name != "done"}
    if not _something(figures):
        return "mended"
    return "left" if _sum(figures) < _sum(before) else "unchanged"


def _sum(figures: Figures) -> float:
    return sum(value or 0 for value in figures.values())


def _something(figures: Figures) -> bool:
    return any(figures.values())


def _kind(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "code", None)
    if isinstance(error, psycopg.Error):
        return f"{type(error).__name__} {error.sqlstate or ''}".strip()
    return f"{type(error).__name__} {reason}" if isinstance(reason, str) else type(error).__name__


_LOOK_AGAIN = Action("look_again", "Looked again", None, lambda _: {})
