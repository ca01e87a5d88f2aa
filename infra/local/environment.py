"""Environment variables of the stack's child processes; nothing of the parent's goes on but what is listed."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from infra.local.template import REGION, Function

# What any program needs to run, and the knobs of `almagest.settings` that a developer may turn for the functions.
_PASSED_ON = (
    *("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"),
    *("ALMAGEST_MODEL", "ALMAGEST_MODEL_DIR", "ALMAGEST_THREADS", "ALMAGEST_INLINE_CHUNKS"),
    *("ALMAGEST_CALLER_CACHE_SECONDS", "ALMAGEST_RPC_TIMEOUT_SECONDS"),
)


@dataclass(frozen=True)
class Runner:
    """What runs a function's process.

    Attributes
    ----------
    program
        The interpreter.
    runtime
        Folder of the Runtime API's client for it, as Lambda has one; None where the interpreter has its own, and all
        packages with it.
    """

    program: Path
    runtime: Path | None = None

    @property
    def command(self) -> list[str]:
        """How a handler is started; its name follows."""
        alone = [] if self.runtime is None else ["-S"]
        return [str(self.program), *alone, "-m", "awslambdaric"]


HERE = Runner(Path(sys.executable))


def passed_on() -> dict[str, str]:
    """Return the parent's variables that a child process may see."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


def function_environment(
    function: Function, runtime_api: str, lambda_api: str, runner: Runner = HERE
) -> dict[str, str]:
    """Return the environment of a function's process, as Lambda sets it.

    LAMBDA_TASK_ROOT is set for a package, which brings its model along; the code of a checkout takes the model from
    the Python environment.

    Parameters
    ----------
    function
        The function; its own variables win over the parent's, and lose against Lambda's reserved ones.
    runtime_api
        host:port of the process's Runtime API.
    lambda_api
        URL that answers for the APIs of AWS that functions use: one invokes another, all read secrets.
    runner
        What runs the process.
    """
    return {
        **passed_on(),
        **function.environment,
        "PYTHONPATH": os.pathsep.join(map(str, filter(None, (function.code, runner.runtime)))),
        "PYTHONUNBUFFERED": "1",
        "LANG": "C.UTF-8",
        "TZ": ":UTC",
        "_HANDLER": function.handler,
        "AWS_LAMBDA_RUNTIME_API": runtime_api,
        "AWS_LAMBDA_FUNCTION_NAME": function.name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory),
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{function.name}",
        "AWS_LAMBDA_LOG_STREAM_NAME": "local",
        "AWS_EXECUTION_ENV": f"AWS_Lambda_python{sys.version_info.major}.{sys.version_info.minor}",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL_LAMBDA": lambda_api,
        "AWS_ENDPOINT_URL_SECRETS_MANAGER": lambda_api,
        **({"LAMBDA_TASK_ROOT": str(function.code)} if runner.runtime else {}),
    }
