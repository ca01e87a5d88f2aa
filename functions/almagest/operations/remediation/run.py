"""A remediation run: what a health run found is answered by actions, checked again, and told where it stays."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg

from almagest import deadline
from almagest.operations.health.check import perform
from almagest.operations.health.registry import CHECKS
from almagest.operations.health.run import hub_key, record
from almagest.operations.remediation.action import Action, Figures, Mending
from almagest.operations.remediation.answers import ANSWERS, Answer

if TYPE_CHECKING:
    from almagest.operations.jobs import Run

logger = logging.getLogger(__name__)

# After so many tries in vain the actions are left alone until the check has passed, or a person asks for them.
TRIES = 3
# The most that one action takes, and what is kept back for the checks that follow.
ACTION_SECONDS = 300.0
RESERVE_SECONDS = 60.0

GIVEN_UP = (
    " It was tried three times in vain and is not tried again until the check has passed; once you have done something"
    " about it, `almagest jobs run remediation` tries it now."
)


def remediate(run: "Run") -> Figures:
    """Answer the latest health run that found something and has not been tried.

    By hand, one that has been tried is tried again, and so are actions that have been given up.

    Returns
    -------
    dict
        `health_run`, None where there is nothing to answer; how many checks are `mended` and how many are `left`;
        `checks`, each with its actions and how they ended; `open_hub_entries`.
    """
    mending = Mending(run.runtime, run.connection)
    claimed = run.step("claim", lambda _: {"health_run": mending.remedy.claim(run.id, again=is_by_hand(run))})
    health_run = claimed["health_run"]
    answered: dict[str, Figures] = {}
    if health_run is not None:
        found = {check["name"] for check in mending.health.checks(health_run) if check["status"] != "ok"}
        answered = {name: _Case(run, mending, health_run, name).answer() for name in ANSWERS if name in found}
    statuses = [case["status"] for case in answered.values()]
    return {
        "health_run": health_run,
        "mended": statuses.count("ok"),
        "left": len(statuses) - statuses.count("ok"),
        "checks": answered,
        "open_hub_entries": mending.health.open_hub_entries(),
    }


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
        self._tries = mending.remedy.tries_in_vain(check, run.id)

    def answer(self) -> Figures:
        """Try the actions, make the check again, and tell people where it still does not pass."""
        given_up = self._tries >= TRIES and not is_by_hand(self._run)
        if given_up:
            self._run.step(f"{self._check}.none", lambda _: self._leave())
        states, checked = ({"none": "left"}, None) if given_up else self._try_all()
        if checked is None:
            checked = self._run.step(f"{self._check}.check", lambda _: self._check_again())
        if checked["status"] != "ok":
            self._run.step(f"{self._check}.hub", lambda _: self._tell(tried=not given_up))
        return {"status": checked["status"], "measured": checked["measured"], "actions": states}

    def _try_all(self) -> tuple[dict[str, str], Figures | None]:
        """How each action ended that had something to do, and what the check found after those that it measures."""
        states: dict[str, str] = {}
        checked = None
        for action in self._answer.actions:
            done = self._step(action)
            if done["state"]:
                states[action.name] = done["state"]
            checked = done.get("checked") or checked
            if checked and checked["status"] == "ok":
                break
        if not states:
            done = self._step(_LOOK_AGAIN)
            states, checked = {_LOOK_AGAIN.name: done["state"]}, done["checked"]
        return states, checked

    def _step(self, action: Action) -> Figures:
        return self._run.step(f"{self._check}.{action.name}", lambda _: self._do(action))

    def _do(self, action: Action) -> Figures:
        """Do an action, and keep how it ended; `state` is None where there was nothing to do."""
        started = datetime.now(UTC)
        if action.measure is None:
            before: Figures = {}
            after, error = self._limited(lambda: {"done": action.act(self._mending)})
            checked = self._check_again()
            after |= checked
            state = "failed" if error else "mended" if checked["status"] == "ok" else "unchanged"
            self._record(action.name, state, before, after, error, started)
            return {"state": state, "checked": checked}
        measure = action.measure
        before, error = self._limited(lambda: measure(self._mending))
        if not error and not _something(before):
            return {"state": None}
        after = {}
        if not error:
            after, error = self._limited(
                lambda: {"done": action.act(self._mending), **measure(self._mending)}
            )  # in this order
        state = _state(before, after, error)
        self._record(action.name, state, before, after, error, started)
        return {"state": state}

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

    def _leave(self) -> Figures:
        self._record("none", "left", {"tries": self._tries}, {}, None, datetime.now(UTC))
        return {"state": "left"}

    def _record(
        self, action: str, state: str, before: Figures, after: Figures, error: str | None, started: datetime
    ) -> None:
        self._mending.remedy.record(
            {
                "run_id": self._run.id,
                "health_run_id": self._health_run,
                "check_name": self._check,
                "action": action,
                "attempt": self._tries + 1,
                "state": state,
                "before": before,
                "after": after,
                "error": error,
                "started_at": started.isoformat(),
            }
        )

    def _check_again(self) -> Figures:
        return record(self._run, perform(CHECKS[self._check], self._run.runtime))

    def _tell(self, *, tried: bool) -> Figures:
        """Open the check's entry in the Hub, or bring it up to date."""
        health = self._mending.health
        key = hub_key(self._check)
        if not tried and health.is_open(key):
            return {"told": False}
        [found] = [check for check in health.checks(self._run.id) if check["name"] == self._check]
        given_up = self._tries + 1 >= TRIES
        health.open_hub_entry(
            key,
            "critical" if found["status"] == "failed" else "warning",
            {
                "title": self._answer.title,
                "found": found["sentence"],
                "tried": [self._told(each) for each in self._mending.remedy.tried(self._check)],
                "to_do": self._answer.to_do + (GIVEN_UP if given_up else ""),
                "figures": {
                    "check": self._check,
                    "run": self._run.id,
                    **{name: found[name] for name in ("status", "measured", "threshold", "unit")},
                },
            },
        )
        return {"told": True}

    def _told(self, tried: dict[str, Any]) -> dict[str, Any]:
        sentences = {action.name: action.sentence for action in (*self._answer.actions, _LOOK_AGAIN)}
        return {**tried, "what": sentences.get(tried["what"], tried["what"])}


def _state(before: Figures, after: Figures, error: str | None) -> str:
    """How an action ended: mended, what it is about is gone; left, some of it; unchanged, none of it; or failed."""
    if error:
        return "failed"
    figures = {name: value for name, value in after.items() if name != "done"}
    if not _something(figures):
        return "mended"
    return "unchanged" if figures == before else "left"


def _something(figures: Figures) -> bool:
    return any(figures.values())


def _kind(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "code", None)
    if isinstance(error, psycopg.Error):
        return f"{type(error).__name__} {error.sqlstate or ''}".strip()
    return f"{type(error).__name__} {reason}" if isinstance(reason, str) else type(error).__name__


_LOOK_AGAIN = Action("look_again", "Looked again", None, lambda _: {})
