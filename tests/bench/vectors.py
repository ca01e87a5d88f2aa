"""Vectors of texts by the configured model, made once and kept as arrays."""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from almagest.embedding.embedder import Embedder
from almagest.settings import Settings
from tests.bench.places import CACHE

Vectors = NDArray[np.float32]

STRIDE = 256


@cache
def embedder() -> Embedder:
    """The embedder that the functions use."""
    settings = Settings()
    return Embedder(settings.model_path, settings.model_name, settings.threads)


def of_passages(texts: Sequence[str], what: str) -> Vectors:
    """Vectors of passages, shape (len(texts), 384); ``what`` names them in the progress bar."""
    kept = _place("passages", texts)
    if not kept.is_file():
        # Alike in length within a stride, since a batch is padded to its longest text.
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        made = np.empty((len(texts), embedder().dimension), np.float32)
        for start in track(range(0, len(texts), STRIDE), f"Embedding {what}"):
            places = order[start : start + STRIDE]
            made[places] = embedder().embed_passages([texts[place] for place in places])
        _keep(kept, made)
    return np.load(kept)  # type: ignore[no-any-return]


def of_queries(texts: Sequence[str], what: str) -> Vectors:
    """Vectors of queries, shape (len(texts), 384)."""
    kept = _place("queries", texts)
    if not kept.is_file():
        _keep(kept, np.array([embedder().embed_query(text) for text in track(texts, f"Embedding {what}")], np.float32))
    return np.load(kept)  # type: ignore[no-any-return]


def _place(role: str, texts: Sequence[str]) -> Path:
    digest = hashlib.sha256("\0".join([embedder().model, role, *texts]).encode()).hexdigest()
    return CACHE / "vectors" / f"{digest[:24]}.npy"


def _keep(path: Path, vectors: Vectors) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(".part")
    with half.open("wb") as file:
        np.save(file, vectors)
    half.replace(path)
