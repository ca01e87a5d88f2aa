"""What `make package` makes: it fits Lambda, and every artefact runs with nothing else on the path."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from packaging.utils import parse_wheel_filename

from almagest.embedding.model import FILES
from infra.local import ROOT
from infra.package.build import LIMIT, ROOM, Package, handlers, locked_wheels
from infra.package.interpreters import find
from infra.package.places import LOCKED, PACKAGES, PROBE, SBOM
from infra.package.target import HERE, Target
from infra.package.wheels import read_lock
from tests.stack import own_stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

# Lambda's Python where this machine has one, and this one otherwise.
TARGET = Target() if find(Target().python) else Target(HERE)
INTERPRETER = find(TARGET.python)
FUNCTIONS = sorted(handlers())


def make(*options: str) -> str:
    done = subprocess.run([sys.executable, "-m", "infra.package", *options], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def printed() -> str:
    """What making the package prints; it is made where `make package` makes it."""
    return make("--python", TARGET.python)


@pytest.fixture(scope="module")
def package(printed: str) -> Package:
    return Package.read(ROOT / PACKAGES)


def files_of(name: str) -> Iterator[Path]:
    return (path for path in (ROOT / PACKAGES / name).rglob("*") if path.is_file())


def test_artefacts_fit_with_room_to_spare(package: Package, printed: str) -> None:
    assert sorted(artefact.name for artefact in package.artefacts) == FUNCTIONS
    for artefact in package.artefacts:
        size = sum(path.stat().st_size for path in files_of(artefact.name))
        # The table counts every byte that is there.
        assert size == artefact.bytes <= LIMIT - ROOM
    totals = next(line for line in printed.splitlines() if line.startswith("all ")).split()[1:]
    assert totals == [f"{artefact.bytes / 1e6:.2f}" for artefact in package.artefacts]


def test_every_wheel_is_locked_and_for_the_target(package: Package) -> None:
    hashes = {line.name: line.text for line in read_lock(ROOT / LOCKED) if line.is_for(TARGET)}
    wheels = {wheel.file.name: wheel for wheel in locked_wheels(TARGET)}
    packed = {part.wheel for artefact in package.artefacts for part in artefact.parts if part.wheel}
    assert len(packed) > 40
    for name in packed:
        wheel = wheels[name]
        inside = wheel.tags
        assert inside & TARGET.tags, (name, sorted(map(str, inside)))
        assert parse_wheel_filename(name)[3] & TARGET.tags
        assert f"--hash=sha256:{hashlib.sha256(wheel.file.read_bytes()).hexdigest()}" in hashes[wheel.name]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_only_the_targets_extensions_are_inside(package: Package, name: str) -> None:
    tag = TARGET.cache_tag.removeprefix("cpython-")
    for path in files_of(name):
        if ".cpython-" in path.name:
            assert f".cpython-{tag}" in path.name, path
        assert path.suffix not in (".pyi", ".whl")
        assert "tests" not in path.relative_to(ROOT / PACKAGES / name).parts


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_model_is_inside_and_whole(package: Package, name: str) -> None:
    for file in FILES:
        content = (ROOT / PACKAGES / name / "model" / file.name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == file.sha256


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_handler_runs_with_nothing_else_on_the_path(package: Package, name: str, tmp_path: Path) -> None:
    """Imported, asked, and made to embed: the interpreter has no packages of its own, and sees no checkout."""
    assert INTERPRETER is not None
    folder = ROOT / PACKAGES / name
    embeds = ["fastembed"]
    done = subprocess.run(
        [str(INTERPRETER), "-S", str(ROOT / PROBE), f"almagest.handlers.{name}", *embeds],
        cwd=tmp_path,
        env={
            "PYTHONPATH": str(folder),
            "PYTHONNOUSERSITE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "LAMBDA_TASK_ROOT": str(folder),
            "ALMAGEST_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "ModuleNotFoundError" not in done.stdout + done.stderr
    used = json.loads(done.stdout.rpartition("USED ")[2])
    ours = [path for path in used if path.endswith(".py") and "/site-packages/" in path]
    assert ours == []
    assert any(path.startswith(str(folder)) and "onnxruntime" in path for path in used)
    assert str(folder / "model" / "model.onnx") in used or f"{folder}/model/tokenizer.json" in used


def test_compiled_modules_are_taken(package: Package) -> None:
    """On Lambda nothing can be compiled, since the code's folder is not to be written to."""
    for artefact in package.artefacts:
        folder = ROOT / PACKAGES / artefact.name
        own = list((folder / "almagest").rglob("*.py"))
        for module in own:
            compiled = module.parent / "__pycache__" / f"{module.stem}.{TARGET.cache_tag}.pyc"
            # An unchecked hash: times of files do not survive an upload.
            assert compiled.read_bytes()[4:8] == (1).to_bytes(4, "little")


def test_the_bill_of_materials_names_every_part(package: Package) -> None:
    bill: dict[str, Any] = json.loads((ROOT / PACKAGES / SBOM).read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    components = {each["bom-ref"]: each for each in bill["components"]}
    depends = {each["ref"]: set(each.get("dependsOn", [])) for each in bill["dependencies"]}
    for artefact in package.artefacts:
        expected = {f"wheel:{part.wheel}" for part in artefact.parts if part.wheel} | {"model"}
        assert depends[f"function:{artefact.name}"] == expected
        for reference in expected - {"model"}:
            assert components[reference]["hashes"][0]["alg"] == "SHA-256"
            assert components[reference]["licenses"]
            assert components[reference]["purl"].startswith("pkg:pypi/")
    assert components["model"]["licenses"]
    assert len(components["model"]["components"]) == len(FILES)


def test_a_stack_serves_from_the_artefacts(package: Package, tmp_path: Path) -> None:
    """As on AWS: the artefact's own Python, libraries and model, and secrets that it has to ask for."""
    with own_stack(tmp_path / "stack", "--from-package") as stack:
        headers = {"Authorization": f"Bearer {stack.key}", "Origin": "https://page.example"}
        with httpx.Client(base_url=stack.url, headers=headers, timeout=120) as client:
            text = "The pooler answers ECONNREFUSED while it restarts; wait 5 seconds."
            written = client.post("/v1/write/memories", json={"content": text, "type": "insight"})
            assert written.status_code == 201, written.text
            assert written.json()["index_status"] == "search_ready"
            found = client.post("/v1/search", json={"query": "how long does the pooler restart?"})
            assert found.json()["mode"] == "hybrid", found.text
            assert [each["id"] for each in found.json()["results"]] == [written.json()["id"]]
            # R7: one header, and that from the URL.
            assert found.headers.get_list("access-control-allow-origin") == ["*"]
            started = client.post("/v1/bootstrap", json={"query": "database outages"})
            assert started.status_code == 200, started.text
            assert "ECONNREFUSED" in started.json()["tail"]
            for function, event in {"index": {}, "jobs": {"job": "index_sweep"}}.items():
                swept = client.post(f"/2015-03-31/functions/{function}/invocations", json=event)
                assert "X-Amz-Function-Error" not in swept.headers, swept.text
                assert set(swept.json().get("figures", swept.json())) >= {"indexed", "failed"}
            checked = client.post("/2015-03-31/functions/jobs/invocations", json={"job": "health"})
            assert "X-Amz-Function-Error" not in checked.headers, checked.text
            statuses = {name: check["status"] for name, check in checked.json()["figures"]["checks"].items()}
            assert statuses == dict.fromkeys(statuses, "ok")
            assert len(statuses) == 7
            mended = client.post("/2015-03-31/functions/jobs/invocations", json={"job": "remediation"})
            assert mended.json()["figures"]["health_run"] is None
