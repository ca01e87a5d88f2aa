"""Runs a handler as Lambda does and prints the files it used; stands alone, since it runs on the target's Python.

`python -S probe.py MODULE IMPORT…`, with the code and all packages in PYTHONPATH and the model in ALMAGEST_MODEL_DIR.
One server on a free port stands in for all that a function talks to; its answers lead the handler down its paths, and
need not please it.
"""

import importlib
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

ID = "00000000-0000-0000-0000-000000000000"
CALLER = {"org": ID, "user": ID, "agent": None, "role": "owner", "key": ID}
KEY = "alm_" + "k" * 43
# {"alg": "ES256", "kid": "1"}, {} and a signature that nobody made.
TOKEN = "eyJhbGciOiAiRVMyNTYiLCAia2lkIjogIjEifQ.e30.c2ln"  # noqa: S105 - no secret


class _StandIn(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._send({"keys": []})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if "x-amz-target" in self.headers:
            secret = {"supabase_secret_key": "sb_secret_1", "database_url": "postgresql://u@127.0.0.1:1/d"}
            self._send({"ARN": "arn", "Name": "name", "SecretString": json.dumps(secret)})
        else:
            self._send(CALLER if self.path.endswith("/authenticate") else {})

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _send(self, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Context:
    aws_request_id = ID

    def get_remaining_time_in_millis(self) -> int:
        return 20_000


def _event(credential: str) -> dict[str, Any]:
    return {
        "version": "2.0",
        "job": "index_sweep",  # what the jobs function wants to know; the others pass it over
        "rawPath": "/nowhere",
        "rawQueryString": "",
        "headers": {"authorization": f"Bearer {credential}"},
        "requestContext": {"requestId": ID, "http": {"method": "GET", "path": "/nowhere"}},
    }


def _use(module: Any, imports: list[str]) -> None:
    for event in (_event(KEY), _event(TOKEN)):
        try:
            module.handler(event, _Context())
        except Exception as error:  # no database is behind it
            print(type(error).__name__, file=sys.stderr)
    runtime = importlib.import_module("almagest.runtime").container()
    # Scheduled work asks too as a request does, and comes to it only with a database.
    runtime.rpc.call("get_schema", None, {}, retry=False)
    if "fastembed" in imports:
        runtime.embedder.embed_query("what is loaded?")
    if "boto3" in imports:
        try:
            runtime.functions.invoke(FunctionName="index", InvocationType="Event", Payload=b"{}")
        except Exception as error:
            print(type(error).__name__, file=sys.stderr)


def main(name: str, imports: list[str]) -> None:
    """Import a handler and what it imports later, use both, and print all files that were read or mapped."""
    used: set[str] = set()
    sys.addaudithook(lambda event, found: used.add(str(found[0])) if event == "open" else None)
    server = HTTPServer(("127.0.0.1", 0), _StandIn)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    os.environ |= {
        "SUPABASE_URL": address,
        "ALMAGEST_SECRETS": "arn",
        "AWS_ENDPOINT_URL_SECRETS_MANAGER": address,
        "AWS_ENDPOINT_URL_LAMBDA": address,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    module = importlib.import_module(name)
    for each in imports:
        importlib.import_module(each)
    _use(module, imports)
    used |= {file for found in list(sys.modules.values()) if (file := getattr(found, "__file__", None))}
    used |= {line.split(maxsplit=5)[5] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    print("USED " + json.dumps(sorted(used)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
