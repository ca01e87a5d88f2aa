"""The emulator runs handlers in real Lambda runtimes and answers as function URLs do."""

import base64
import gzip
import json
import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import httpx
import psutil
import pytest

from infra.local.emulator import Emulator
from infra.local.errors import StackError
from infra.local.events import PAYLOAD_LIMIT
from infra.local.template import read_template

TEMPLATE = Path(__file__).parent / "functions" / "template.yaml"
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def emulator(run_async: Run, logs: Path) -> Iterator[Emulator]:
    os.environ["UNRELATED_TOKEN"] = "a secret of the parent's"
    functions = read_template(TEMPLATE, {})
    emulator = Emulator(functions, logs, retry_delays=(0.01,), known_secrets={"arn:one": {"key": "value"}})
    run_async(emulator.start())
    yield emulator
    workers = [child for child in psutil.Process().children() if "awslambdaric" in child.cmdline()]
    run_async(emulator.stop())
    del os.environ["UNRELATED_TOKEN"]
    _, alive = psutil.wait_procs(workers, timeout=5)
    assert not alive


@pytest.fixture
def client(emulator: Emulator) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{emulator.url}/v1", timeout=30) as client:
        yield client


def test_the_event_is_that_of_a_function_url(client: httpx.Client) -> None:
    answer = client.post(
        "/echo/a%20b?x=1&x=2&y=%26",
        headers=[("X-Twice", "1"), ("x-twice", "2"), ("cookie", "c=1; d=2"), ("content-type", "application/json")],
        content='{"text": "é"}'.encode(),
    )
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    event = answer.json()
    assert event["version"] == "2.0"
    assert event["rawPath"] == "/v1/echo/a%20b"
    assert event["rawQueryString"] == "x=1&x=2&y=%26"
    assert event["queryStringParameters"] == {"x": "1,2", "y": "&"}
    assert event["headers"]["x-twice"] == "1,2"
    assert event["cookies"] == ["c=1", "d=2"]
    assert event["requestContext"]["http"]["path"] == "/v1/echo/a b"
    assert event["requestContext"]["http"]["sourceIp"] == "127.0.0.1"
    assert (event["body"], event["isBase64Encoded"]) == ('{"text": "é"}', False)


def test_binary_bodies_come_as_base64(client: httpx.Client) -> None:
    event = client.post("/echo", content=b"\x00\xff", headers={"content-type": "application/octet-stream"}).json()
    assert (event["body"], event["isBase64Encoded"]) == ("AP8=", True)


def test_compressed_bodies_come_as_they_were_sent(client: httpx.Client) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    for content in (gzip.compress(b"{}"), b"no gzip"):
        event = client.post("/echo", content=content, headers=headers).json()
        assert (base64.b64decode(event["body"]), event["isBase64Encoded"]) == (content, True)


def test_headers_that_are_no_text_are_carried(client: httpx.Client) -> None:
    event = client.get("/echo", headers={"x-bytes": b"a\xff", "x-text": "é".encode()}).json()
    assert (event["headers"]["x-bytes"], event["headers"]["x-text"]) == ("a\ufffd", "é")


def test_what_is_no_http_is_the_clients_fault(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    for request in (b"\x16\x03\x01 TLS", b"POST /v1/echo HTTP/1.1\r\nContent-Length: abc"):
        with socket.create_connection(("127.0.0.1", int(emulator.url.rpartition(":")[2])), timeout=10) as client:
            client.sendall(request + b"\r\n\r\n")
            assert b" 400 " in client.recv(100)
    assert not [record for record in caplog.records if record.exc_info]


def test_the_declared_response_is_sent(client: httpx.Client) -> None:
    answer = client.get("/respond")
    assert answer.status_code == 201
    assert answer.headers["x-answer"] == "42"
    assert answer.headers.get_list("set-cookie") == ["a=1; HttpOnly", "b=2"]
    assert answer.content == b"\x00\xff"


def test_a_process_sees_lambdas_environment_and_nothing_of_the_parents(client: httpx.Client) -> None:
    seen = client.get("/describe").json()
    environment = seen["environment"]
    assert environment["AWS_LAMBDA_FUNCTION_NAME"] == "describe"
    assert environment["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] == "512"
    assert seen["arn"] == "arn:aws:lambda:us-east-1:000000000000:function:describe"
    assert 0 < seen["remaining"] <= 3000
    assert "UNRELATED_TOKEN" not in environment
    assert "LAMBDA_TASK_ROOT" not in environment


def test_a_process_is_kept(client: httpx.Client) -> None:
    assert len({client.get("/describe").json()["pid"] for _ in range(5)}) == 1


@pytest.mark.parametrize("name", ["fail", "leave", "broken"])
def test_exceptions_exits_and_failed_imports_are_502(client: httpx.Client, name: str) -> None:
    for _ in range(2):
        answer = client.get(f"/{name}")
        assert answer.status_code == 502
        assert "secret" not in answer.text
    assert client.get("/echo").status_code == 200


def test_exceptions_are_logged(client: httpx.Client, logs: Path) -> None:
    client.get("/fail")
    assert "the secret sentence" in (logs / "fail.log").read_text()


def test_a_timeout_is_502_and_the_process_is_replaced(client: httpx.Client) -> None:
    before = client.get("/sleep").json()
    assert client.get("/sleep?seconds=30&child=1").status_code == 502
    after = client.get("/sleep").json()
    assert before != after
    assert not psutil.pid_exists(before)


def test_more_than_the_concurrency_is_429(client: httpx.Client) -> None:
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(client.get, ["/sleep?seconds=0.5"] * 4))
    assert sorted(answer.status_code for answer in answers) == [200, 429, 429, 429]


def test_without_a_reservation_requests_wait_their_turn(client: httpx.Client) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(client.get, ["/describe"] * 40))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["pid"] for answer in answers}) <= 2


def test_a_large_request_is_413(client: httpx.Client) -> None:
    headers = {"content-type": "text/plain"}
    assert client.post("/echo", content="x" * PAYLOAD_LIMIT, headers=headers).status_code == 413
    assert client.post("/describe", content="x" * (PAYLOAD_LIMIT - 10_000), headers=headers).status_code == 200


def test_a_large_response_is_502(client: httpx.Client) -> None:
    assert len(client.get(f"/big?size={PAYLOAD_LIMIT - 2}").content) == PAYLOAD_LIMIT
    assert client.get(f"/big?size={PAYLOAD_LIMIT}").status_code == 502
    assert client.get("/big?size=1").text == '"x"'


def test_functions_invoke_each_other_through_boto3(client: httpx.Client) -> None:
    answer = client.get("/relay").json()
    assert answer["accepted"] == 202
    assert json.loads(answer["payload"]) == {"from": "relay"}


def test_secrets_are_read_through_boto3(emulator: Emulator) -> None:
    client = boto3.client(
        "secretsmanager",
        endpoint_url=emulator.url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
    assert json.loads(client.get_secret_value(SecretId="arn:one")["SecretString"]) == {"key": "value"}
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.get_secret_value(SecretId="arn:two")


def test_the_url_answers_browsers_and_the_function_does_not(client: httpx.Client) -> None:
    """R7"""
    page = {"origin": "https://page.example"}
    asked = client.options("/echo", headers=page | {"access-control-request-method": "GET"})
    assert (asked.status_code, asked.content) == (200, b"")
    assert asked.headers["access-control-allow-methods"] == "GET"
    for answer in (asked, client.get("/echo", headers=page)):
        assert answer.headers.get_list("access-control-allow-origin") == ["https://page.example"]
    stranger = client.get("/echo", headers={"origin": "https://other.example"})
    assert "access-control-allow-origin" not in stranger.headers
    assert "access-control-allow-origin" not in client.get("/big?size=1", headers=page).headers


def test_the_invoke_api(emulator: Emulator) -> None:
    def invoke(name: str, content: bytes = b"{}", kind: str = "RequestResponse") -> httpx.Response:
        url = f"{emulator.url}/2015-03-31/functions/{name}/invocations"
        return httpx.post(url, content=content, headers={"x-amz-invocation-type": kind})

    assert invoke("arn%3Aaws%3Alambda%3Aus-east-1%3A000000000000%3Afunction%3Aecho", b'{"a":1}').json() == {"a": 1}
    failed = invoke("fail")
    assert (failed.status_code, failed.headers["x-amz-function-error"]) == (200, "Unhandled")
    assert failed.json()["errorType"] == "ValueError"
    assert invoke("nobody").headers["x-amzn-errortype"] == "ResourceNotFoundException"
    assert invoke("echo", b"{").status_code == 400
    assert invoke("fail", kind="Event").status_code == 202


def test_unknown_paths_are_404(client: httpx.Client) -> None:
    answer = client.get("/nobody/here")
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert answer.headers["x-request-id"] == answer.json()["request_id"]


def test_a_taken_port_is_named(emulator: Emulator, run_async: Run, logs: Path) -> None:
    port = int(emulator.url.rpartition(":")[2])
    with pytest.raises(StackError, match=rf"Port {port} is in use by .*pid {os.getpid()}.*ALMAGEST_PORT"):
        run_async(Emulator({}, logs).start(port))
