"""Where things are and go; paths are relative to the checkout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""

PACKAGES = Path("build/package")
"""One folder a function."""

WHEELS = Path("build/wheels")
"""One folder a target: the wheels as they came, and each one unpacked."""

NOTE = "package.json"
"""In the folder of the artefacts: what is in which."""

SBOM = "sbom.cdx.json"
"""In the same folder: the bill of materials."""

RUNTIME = "runtime"
"""The Runtime API's client, which Lambda has of its own: for running the artefacts here."""

PROBE = Path("infra/package/probe.py")
TEMPLATE = Path("template.yaml")
FUNCTIONS = Path("functions")
LOCKED = Path("requirements/runtime.txt")
LOCKED_LOCAL = Path("requirements/local.txt")
