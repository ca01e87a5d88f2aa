"""Secrets Manager, as far as the functions ask it: the values of secrets, by their ARN."""

import json
from collections.abc import Mapping

from aiohttp import web

from infra.local.template import ACCOUNT, REGION, Function

SUPABASE = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:supabase"
DATABASE = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:database"
# A secret's keys -> the variables that say the same where nobody is asked.
_VARIABLES = {
    "supabase_secret_key": "SUPABASE_SECRET_KEY",
    "jwt_secret": "SUPABASE_JWT_SECRET",
    "database_url": "DATABASE_URL",
}

Secrets = Mapping[str, Mapping[str, str]]


async def serve(request: web.Request, secrets: Secrets) -> web.Response:
    """Answer a `GetSecretValue`; ARN -> key -> value is what there is."""
    if request.headers.get("X-Amz-Target") != "secretsmanager.GetSecretValue":
        return _answer({"__type": "UnknownOperationException"}, 400)
    arn = json.loads(await request.read()).get("SecretId")
    if arn not in secrets:
        return _answer({"__type": "ResourceNotFoundException", "message": "There is no such secret."}, 400)
    return _answer({"ARN": arn, "Name": arn.rpartition(":")[2], "SecretString": json.dumps(dict(secrets[arn]))}, 200)


def in_variables(function: Function, secrets: Secrets) -> dict[str, str]:
    """Return a function's environment with the secrets that it may read written out, so that it asks nobody."""
    environment = dict(function.environment)
    for arn in environment.pop("ALMAGEST_SECRETS", "").split(","):
        environment |= {_VARIABLES[key]: value for key, value in secrets.get(arn, {}).items()}
    return environment


def _answer(body: dict[str, str], status: int) -> web.Response:
    return web.json_response(body, status=status, content_type="application/x-amz-json-1.1")
