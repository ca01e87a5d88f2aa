"""What a command works with: the settings of this project or of the local stack, a runtime, and the caller."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from almagest.problems import Problem

if TYPE_CHECKING:
    import psycopg

    from almagest.models.base import Request
    from almagest.models.call import Call
    from almagest.models.caller import Caller
    from almagest.runtime import Runtime
    from almagest.settings import Settings

AnyRequest = TypeVar("AnyRequest", bound="Request")

START_ADVICE = "start the local one with `almagest stack start`, or with `make up`"


def read_settings() -> "Settings":
    """Settings of the environment; where it names no Supabase project, those of the local stack."""
    settings = read_environment()
    return settings if settings.supabase_url else _with_local_stack(settings)


def read_environment() -> "Settings":
    """Settings of the environment alone.

    Raises
    ------
    Problem
        `invalid_settings` when a variable has an impossible value.
    """
    from pydantic import ValidationError

    from almagest.models.errors import errors_of
    from almagest.settings import Settings

    try:
        return Settings()
    except ValidationError as error:
        errors = errors_of(error, dict.fromkeys(str(each["loc"][0]) for each in error.errors()))
        wrong = "; ".join(f"{each['field']}: {each['message']}" for each in errors)
        raise Problem(400, "invalid_settings", f"The environment has an impossible setting: {wrong}") from None


def _with_local_stack(settings: "Settings") -> "Settings":
    from pydantic import SecretStr

    state = _stack_state(settings)
    if state is None:
        return settings
    own_key = SecretStr(state["key"]) if state["key"] else None  # a stack over a real project has none
    return settings.model_copy(
        update={
            "supabase_url": state["supabase_url"],
            "supabase_key": SecretStr(state["supabase_key"]),
            "database_url": settings.database_url or SecretStr(state["database_url"]),
            "api_key": settings.api_key or own_key,
        }
    )


def _stack_state(settings: "Settings") -> dict[str, Any] | None:
    try:
        state: dict[str, Any] = json.loads((settings.directory / "stack.json").read_text())
    except (OSError, ValueError):
        return None
    return state


@contextmanager
def open_runtime() -> Iterator["Runtime"]:
    """A runtime over the project or the local stack, closed at the end.

    Raises
    ------
    Problem
        `no_stack` when neither is known, `database_unavailable` when it does not answer, `invalid_settings` when the
        environment names one by halves.
    """
    settings = read_settings()
    _demand_one_project(settings)
    if not settings.supabase_url:
        raise Problem(503, "no_stack", f"There is no stack in {settings.directory}: {START_ADVICE}.")
    if not settings.supabase_key:
        raise Problem(400, "invalid_settings", "SUPABASE_URL is set, SUPABASE_SECRET_KEY is not.")
    from almagest.runtime import Runtime

    runtime = Runtime.from_settings(settings)
    try:
        yield runtime
    except Problem as problem:
        if problem.code != "database_unavailable" or isinstance(problem, _DatabaseUnavailable):
            raise
        if read_environment().supabase_url:
            detail = f"No answer from {settings.supabase_url}: is SUPABASE_URL right, and the project up?"
        else:
            detail = f"No answer from the stack at {settings.supabase_url}: {START_ADVICE}."
        raise Problem(problem.status, problem.code, detail) from problem
    finally:
        runtime.rpc.close()


def _demand_one_project(settings: "Settings") -> None:
    """Refuse DATABASE_URL of one project beside the local stack: half of the commands would act on each."""
    environment, state = read_environment(), _stack_state(settings)
    named = environment.database_url and environment.database_url.get_secret_value()
    if not environment.supabase_url and state is not None and named not in (None, state["database_url"]):
        detail = (
            f"DATABASE_URL is set, SUPABASE_URL is not, and the stack in {settings.directory} has another database:"
            " set all of a project's, or none."
        )
        raise Problem(400, "invalid_settings", detail)


@contextmanager
def open_session(*, autocommit: bool = False) -> Iterator["psycopg.Connection"]:
    """A connection to the database itself, for the one who operates it: who has its URL may read and change all.

    Raises
    ------
    Problem
        `no_stack` when no database is known, `database_unavailable` when it does not answer, `schema_mismatch` when it
        was not migrated, `forbidden` when the role may not do this.
    """
    settings = read_settings()
    if not settings.database_url:
        raise Problem(503, "no_stack", f"There is no database: set DATABASE_URL, or {START_ADVICE}.")
    from almagest.database.session import connect

    with database_errors(), connect(settings, autocommit=autocommit) as connection:
        yield connection


@contextmanager
def database_errors() -> Iterator[None]:
    """Tell an operator what is wrong with the database, instead of what Postgres says about it.

    Raises
    ------
    Problem
        `database_unavailable`, `schema_mismatch` or `forbidden`, as `open_session` has them.
    """
    import psycopg

    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        detail = "This role may not do it, or is shown some of the rows only: use the URL of the role that migrates."
        raise Problem(403, "forbidden", detail) from error
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedFunction, psycopg.errors.InvalidSchemaName) as error:
        raise Problem(503, "schema_mismatch", "This database lacks something: run `almagest migrate`.") from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        detail = f"The database does not answer ({type(error).__name__}): is DATABASE_URL right, and the database up?"
        raise _DatabaseUnavailable(503, "database_unavailable", detail) from error


class _DatabaseUnavailable(Problem):
    """DATABASE_URL does not answer, whatever SUPABASE_URL does."""


def current_caller(runtime: "Runtime") -> "Caller":
    """Who runs the command: the holder of ALMAGEST_KEY, or of the local stack's own key.

    Raises
    ------
    Problem
        `no_key` without one, `unauthorized` when it is not valid.
    """
    from almagest.operations.authenticate import authenticate_key

    if not runtime.settings.api_key:
        raise Problem(401, "no_key", "Set ALMAGEST_KEY to an API key; `almagest key create` makes one.")
    return authenticate_key(runtime, runtime.settings.api_key.get_secret_value()).caller


def build_request(model: type[AnyRequest], **fields: Any) -> AnyRequest:
    """Build a request from the options that were given: those that are None were not."""
    return read_request(model, {name: value for name, value in fields.items() if value is not None})


def read_request(model: type[AnyRequest], given: dict[str, Any]) -> AnyRequest:
    """Build a request from fields, of which None is a value too.

    Raises
    ------
    Problem
        `invalid_request`, with every field that is wrong.
    """
    from pydantic import ValidationError

    from almagest.models.errors import errors_of, summary

    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise Problem(422, "invalid_request", summary(errors_of(error, given))) from None


def new_call(idempotency_key: str | None = None) -> "Call":
    """What surrounds one request of this command."""
    from almagest.models.call import Call

    return Call(request_id=str(uuid4()), idempotency_key=idempotency_key)
