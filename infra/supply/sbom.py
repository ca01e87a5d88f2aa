"""The bill of materials of a package, in CycloneDX: functions, what is in each, and the hashes of all of it."""

from collections.abc import Mapping
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from almagest import __version__
from almagest.embedding.model import FILES
from infra.package.build import MODEL, OWN, Package
from infra.package.wheels import Wheel
from infra.supply.licences import MODEL_LICENCE, OWN_LICENCE, UNKNOWN, licence_of

_LICENCES = LicenseFactory()


def write_sbom(package: Package, wheels: Mapping[str, Wheel], file: Path) -> None:
    """Write the bill of materials.

    Parameters
    ----------
    package
        What was made.
    wheels
        Name -> the wheel that was unpacked.
    file
        Where it goes, as JSON.
    """
    application = Component(
        name=OWN,
        version=__version__,
        type=ComponentType.APPLICATION,
        bom_ref=OWN,
        licenses=[_LICENCES.make_from_string(OWN_LICENCE)],
    )
    bom = Bom()
    bom.metadata.component = application
    parts: dict[str, Component] = {}
    functions = []
    for artefact in package.artefacts:
        function = Component(
            name=f"{OWN}-{artefact.name}",
            version=__version__,
            type=ComponentType.APPLICATION,
            bom_ref=f"function:{artefact.name}",
            licenses=[_LICENCES.make_from_string(OWN_LICENCE)],
        )
        for part in artefact.parts:
            if part.name != OWN and part.name not in parts:
                parts[part.name] = _model() if part.name == MODEL else _library(wheels[part.name])
        bom.register_dependency(function, [parts[part.name] for part in artefact.parts if part.name != OWN])
        functions.append(function)
    bom.register_dependency(application, functions)
    for component in (*functions, *parts.values()):
        bom.components.add(component)
    file.write_text(JsonV1Dot6(bom).output_as_string(indent=1) + "\n", "utf-8")


def _library(wheel: Wheel) -> Component:
    licence = licence_of(wheel.metadata)
    return Component(
        name=wheel.name,
        version=wheel.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"wheel:{wheel.file.name}",
        purl=PackageURL("pypi", name=wheel.name, version=wheel.version, qualifiers={"file_name": wheel.file.name}),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=wheel.sha256)],
        licenses=[] if licence == UNKNOWN else [_LICENCES.make_from_string(licence)],
    )


def _model() -> Component:
    files = [
        Component(
            name=file.name,
            type=ComponentType.FILE,
            bom_ref=f"model:{file.name}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=file.sha256)],
        )
        for file in FILES
    ]
    return Component(
        name="all-MiniLM-L6-v2",
        type=ComponentType.MACHINE_LEARNING_MODEL,
        bom_ref="model",
        description="Sentence embeddings of 384 dimensions, int8.",
        licenses=[_LICENCES.make_from_string(MODEL_LICENCE)],
        components=files,
    )
