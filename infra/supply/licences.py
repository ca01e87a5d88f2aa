"""The licences of all parts, as their makers state them, in the words of SPDX."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from importlib.metadata import PackageNotFoundError, distribution

from infra.package.build import MODEL, OWN, Package, locked_wheels
from infra.package.places import LOCKED_LOCAL, PACKAGES, ROOT
from infra.package.target import Target
from infra.package.wheels import read_lock

UNKNOWN = "unknown"
OWN_LICENCE = MODEL_LICENCE = "Apache-2.0"
NPM = ROOT / "infra" / "local" / "package-lock.json"
# What a wheel says in its licence file alone.
_READ_BY_HAND = {"py-rust-stemmers": "MIT"}
_SPDX = {
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache License 2.0": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache 2": "Apache-2.0",
    "The MIT License (MIT)": "MIT",
    "PSFL": "PSF-2.0",
    "BSD": "BSD-3-Clause",
}
_EXPRESSION = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")


@dataclass(frozen=True)
class Licensed:
    """A part and its licence; `where` names the functions that it is in, or what else it is for."""

    name: str
    version: str
    licence: str
    where: str


def licence_of(metadata: Message) -> str:
    """A distribution's licence as an SPDX expression, or `unknown`."""
    if name := _READ_BY_HAND.get(str(metadata["Name"]).lower().replace("_", "-")):
        return name
    if expression := metadata["License-Expression"]:
        return str(expression)
    stated = str(metadata["License"] or "").strip().split("\n")[0]
    named = [each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier", []) if " OSI Approved ::" in each]
    for words in ([stated], named):
        known = [_SPDX.get(each, each) for each in words]
        if known and all(_EXPRESSION.fullmatch(each) for each in known):
            return " OR ".join(dict.fromkeys(known))
    return UNKNOWN


def all_parts() -> list[Licensed]:
    """Our own code, the model, what the functions may import, and what runs beside them on a desk."""
    places = _places()
    own = [
        Licensed(OWN, "", OWN_LICENCE, "all functions"),
        Licensed(MODEL, "all-MiniLM-L6-v2, int8", MODEL_LICENCE, places.get(MODEL, "functions")),
    ]
    deployed = [
        Licensed(wheel.name, wheel.version, licence_of(wheel.metadata), places.get(wheel.name, "command line"))
        for wheel in locked_wheels(Target())
    ]
    names = {part.name for part in deployed}
    return [*own, *deployed, *(part for part in _of_the_local_stack() if part.name not in names)]


def _places() -> dict[str, str]:
    """Part -> the functions that it is in; before the first `make package`, nothing is known of that."""
    try:
        package = Package.read(ROOT / PACKAGES)
    except OSError:
        return {}
    found: dict[str, list[str]] = {}
    for artefact in package.artefacts:
        for part in artefact.parts:
            found.setdefault(part.name, []).append(artefact.name)
    return {name: " ".join(functions) for name, functions in found.items()}


def _of_the_local_stack() -> Iterator[Licensed]:
    for line in read_lock(ROOT / LOCKED_LOCAL):
        try:
            found = distribution(line.name)
        except PackageNotFoundError:
            continue  # for another platform
        # The type says less than the object is: an email.message.Message, like a wheel's.
        metadata: Message = found.metadata  # type: ignore[assignment]
        yield Licensed(line.name, found.version, licence_of(metadata), "local stack")
    for path, package in json.loads(NPM.read_text())["packages"].items():
        if path:
            name = path.removeprefix("node_modules/")
            yield Licensed(name, package["version"], package.get("license", UNKNOWN), "local stack")
