"""Handlers that the emulator's tests run as functions."""

import base64
import os
import subprocess
import sys
import time
from typing import Any

import boto3

Event = dict[str, Any]


def echo(event: Event, context: Any) -> Event:
    return event


def describe(event: Event, context: Any) -> Event:
    return {
        "environment": dict(os.environ),
        "request_id": context.aws_request_id,
        "arn": context.invoked_function_arn,
        "remaining": context.get_remaining_time_in_millis(),
        "pid": os.getpid(),
    }


def respond(event: Event, context: Any) -> Event:
    return {
        "statusCode": 201,
        "headers": {"X-Answer": "42", "Content-Type": "application/octet-stream"},
        "cookies": ["a=1; HttpOnly", "b=2"],
        "body": base64.b64encode(b"\x00\xff").decode(),
        "isBase64Encoded": True,
    }


def fail(event: Event, context: Any) -> None:
    raise ValueError("the secret sentence")


def leave(event: Event, context: Any) -> None:
    os._exit(3)


def sleep(event: Event, context: Any) -> int:
    seconds = float((event.get("queryStringParameters") or {}).get("seconds", 0))
    if event.get("queryStringParameters", {}).get("child"):
        subprocess.run([sys.executable, "-c", f"import time; time.sleep({seconds})"], check=True)
    time.sleep(seconds)
    return os.getpid()


def big(event: Event, context: Any) -> str:
    return "x" * int(event["queryStringParameters"]["size"])


def relay(event: Event, context: Any) -> Event:
    """Invoke another function as a deployed one would."""
    answer = boto3.client("lambda").invoke(FunctionName="echo", Payload=b'{"from":"relay"}', InvocationType="Event")
    direct = boto3.client("lambda").invoke(FunctionName="echo", Payload=b'{"from":"relay"}')
    return {"accepted": answer["StatusCode"], "payload": direct["Payload"].read().decode()}
