"""Environment variables of the stack's child processes; nothing of the parent's goes on but what is listed."""

import os
import sys

from infra.local.template import REGION, Function

# What any program needs to run, and the knobs of `almagest.settings` that a developer may turn for the functions.
_PASSED_ON = (
    *("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"),
    *("ALMAGEST_MODEL", "ALMAGEST_MODEL_DIR", "ALMAGEST_THREADS", "ALMAGEST_INLINE_CHUNKS"),
    *("ALMAGEST_CALLER_CACHE_SECONDS", "ALMAGEST_RPC_TIMEOUT_SECONDS"),
)


def passed_on() -> dict[str, str]:
    """Return the parent's variables that a child process may see."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


def function_environment(function: Function, runtime_api: str, lambda_api: str) -> dict[str, str]:
    """Return the environment of a function's process, as Lambda sets it.

    LAMBDA_TASK_ROOT stays unset: the code lies in a checkout, and the model in the Python environment.

    Parameters
    ----------
    function
        The function; its own variables win over the parent's, and lose against Lambda's reserved ones.
    runtime_api
        host:port of the process's Runtime API.
    lambda_api
        URL that answers for AWS Lambda's API, so that one function can invoke another.
    """
    return {
        **passed_on(),
        **function.environment,
        "PYTHONPATH": str(function.code),
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
    }
