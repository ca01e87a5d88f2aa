"""Text -> vectors, by fastembed on plain files; loaded on first use, never from a hub."""

import hashlib
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from almagest.embedding.model import EmbeddingUnavailable, fingerprint, verify
from almagest.settings import MODEL_NAME

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["DIMENSION", "Embedder", "EmbeddingUnavailable", "to_literal"]

DIMENSION = 384

# The window is the 512 tokens of tokenizer_config.json, which is all the positions that the model has, and not the 256
# of its training: a chunk of 1200 characters is 220 to 340 tokens of prose and up to 440 of Markdown, so 256 would
# leave the tail of every third chunk out of its vector; what is denser is cut into smaller chunks. It costs nothing
# that can be measured: Cranfield by vectors alone has nDCG@10 .503 with 512 and .505 with 256.
# Beyond these characters no ordinary text still fits the window; tokenising a million takes seconds.
MAX_CHARACTERS = 16_000

# Sorted by length, 4 texts a run are the best of 1..64 for short texts (190 a second on 2 cores) and within a tenth of
# the best for whole chunks (21 against 22); 32 fall to half of that, since the larger tensors leave the cache.
BATCH_SIZE = 4

RETRY_SECONDS = 60.0

# The vocabulary holds every Latin letter and digit, so a word of them is never unknown; a longer one is read as one.
PLAIN_WORD = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{1,100}(?![A-Za-z0-9])")
UNKNOWN_TOKEN = "[UNK]"  # noqa: S105 - of the vocabulary


class Encoder(Protocol):
    """What is used of fastembed's ``TextEmbedding``; a vector is a numpy array of shape (dimension,)."""

    def query_embed(self, query: str) -> Iterable[Any]: ...

    def passage_embed(self, texts: Iterable[str], *, batch_size: int) -> Iterable[Any]: ...


@dataclass(frozen=True)
class Model:
    """An encoder in memory, and the label under which its vectors are kept apart from another's."""

    encoder: Encoder
    label: str


@dataclass(frozen=True)
class Tokens:
    """A model's tokeniser, which counts without cutting, and how many tokens the model reads."""

    tokenizer: "Tokenizer"
    window: int


class Embedder:
    """Text -> unit vectors of 384 dimensions.

    Nothing is loaded before the first use. A failure to load is remembered for a minute, so that requests do not pay
    for it one by one and a repaired model is still picked up without a restart. Safe to share between threads.

    Parameters
    ----------
    directory
        Folder of the model's plain files.
    model_name
        The name by which fastembed knows the model. The default's files are checked by hash; those of any other
        are taken as they are, but must give 384 dimensions.
    threads
        Threads of the ONNX runtime, within an operator and between operators.

    Examples
    --------
    >>> embedder = Embedder(Settings().model_path)
    >>> len(embedder.embed_query("who owns the billing service?"))
    384
    """

    dimension = DIMENSION

    def __init__(
        self,
        directory: Path,
        model_name: str = MODEL_NAME,
        threads: int = 2,
        *,
        load: Callable[[Path, str, int], Model] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = (directory, model_name, threads)
        self._load = load or load_model
        self._clock = clock
        self._lock = Lock()
        self._loaded: Model | None = None
        self._failure: EmbeddingUnavailable | None = None
        self._retry_at = 0.0

    @property
    def model(self) -> str:
        """Label of the vectors: the model's name and a revision that changes with its files; loads the model.

        Raises
        ------
        EmbeddingUnavailable
            As :meth:`embed_query`.
        """
        return self._ready().label

    def embed_query(self, text: str) -> list[float]:
        """Vector of a query, shape (384,).

        Raises
        ------
        EmbeddingUnavailable
            With a stable ``reason``; no other exception. ``no_known_token`` for a text of which the model knows no
            part, such as an emoji: all of these have nearly the same vector, which is near to any short text.
        """
        encoder = self._ready().encoder
        if not (PLAIN_WORD.search(text) or self._knows(text[:MAX_CHARACTERS])):
            raise EmbeddingUnavailable("no_known_token", "the model knows no part of this text")
        return _vectors(lambda: encoder.query_embed(text[:MAX_CHARACTERS]), 1)[0]

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of passages in the order given, shape (len(texts), 384).

        Raises
        ------
        EmbeddingUnavailable
            With a stable ``reason``; no other exception.
        """
        if not texts:
            return []
        encoder = self._ready().encoder
        # A batch is padded to its longest text, so texts of like length go together.
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        sorted_texts = [texts[index][:MAX_CHARACTERS] for index in order]
        vectors = _vectors(lambda: encoder.passage_embed(sorted_texts, batch_size=BATCH_SIZE), len(texts))
        by_index = dict(zip(order, vectors, strict=True))
        return [by_index[index] for index in range(len(texts))]

    @property
    def window(self) -> int:
        """How many tokens of a text the model reads; what is behind them is in no vector.

        Raises
        ------
        EmbeddingUnavailable
            As :meth:`count_tokens`.
        """
        return self._tokens.window

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has, those included that the model adds; loads the tokeniser, not the model.

        Raises
        ------
        EmbeddingUnavailable
            ``model_missing`` or ``model_corrupt``; no other exception.
        """
        if not texts:
            return []
        # The fast form leaves out where each token stands.
        return [len(encoding.ids) for encoding in self._tokens.tokenizer.encode_batch_fast(list(texts))]

    def _knows(self, text: str) -> bool:
        tokenizer = self._tokens.tokenizer
        unknown = tokenizer.token_to_id(UNKNOWN_TOKEN)
        # half of a surrogate pair is refused by the model itself
        whole = text.encode(errors="replace").decode()
        return any(token != unknown for token in tokenizer.encode(whole, add_special_tokens=False).ids)

    @cached_property
    def _tokens(self) -> "Tokens":
        return load_tokens(self._source[0])

    def _ready(self) -> Model:
        with self._lock:
            if self._loaded is None:
                if self._failure and self._clock() < self._retry_at:
                    raise EmbeddingUnavailable(self._failure.reason, self._failure.detail)
                try:
                    self._loaded = self._load(*self._source)
                except EmbeddingUnavailable as failure:
                    self._failure = failure
                    self._retry_at = self._clock() + RETRY_SECONDS
                    raise
            return self._loaded


def to_literal(vector: Sequence[float]) -> str:
    """Text form of a vector for pgvector, six significant digits: more than a half-precision column keeps.

    Examples
    --------
    >>> to_literal([0.5, -0.25])
    '[0.5,-0.25]'
    """
    return "[" + ",".join(f"{value:.6g}" for value in vector) + "]"


def load_model(directory: Path, model_name: str, threads: int) -> Model:
    """Check the files, load them and try them once.

    Raises
    ------
    EmbeddingUnavailable
        With a stable ``reason``; no other exception.
    """
    known = model_name.lower() == MODEL_NAME.lower()
    # Before the import, which is the dear part: a missing model is told at once.
    digests = verify(directory) if known else {}

    from fastembed import TextEmbedding

    if not known:
        digests = fingerprint(directory, _files_of(TextEmbedding.list_supported_models(), model_name))
    try:
        encoder = TextEmbedding(
            model_name,
            # With a path given fastembed asks no hub; the cache folder is one that exists, for it would make its own.
            specific_model_path=str(directory),
            cache_dir=str(directory),
            local_files_only=True,
            providers=["CPUExecutionProvider"],
            threads=threads,
        )
    except Exception as error:  # onnxruntime and tokenizers raise what they like, bare Exception among it
        raise EmbeddingUnavailable("model_corrupt", f"the model in {directory} does not load") from error
    _vectors(lambda: encoder.query_embed("almagest"), 1)
    revision = hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()
    return Model(encoder, f"{model_name}@{revision[:12]}")


def load_tokens(directory: Path) -> Tokens:
    """Load the tokeniser alone: 30 ms, where the model takes half a second.

    Raises
    ------
    EmbeddingUnavailable
        ``model_missing`` or ``model_corrupt``; no other exception.
    """
    from tokenizers import Tokenizer

    try:
        settings = json.loads((directory / "tokenizer_config.json").read_text("utf-8"))
        tokenizer = Tokenizer.from_str((directory / "tokenizer.json").read_text("utf-8"))
    except OSError as error:
        raise EmbeddingUnavailable("model_missing", f"the tokeniser in {directory} cannot be read") from error
    except Exception as error:  # tokenizers raises bare Exception
        raise EmbeddingUnavailable("model_corrupt", f"the tokeniser in {directory} does not load") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # The smaller of the two is where fastembed cuts; a model without a limit is given as 1e30 or not at all.
    limits = [settings.get("model_max_length"), settings.get("max_length")]
    return Tokens(tokenizer, min([limit for limit in limits if isinstance(limit, int) and limit > 0], default=512))


def _files_of(supported: list[dict[str, Any]], model_name: str) -> list[str]:
    """Names of the files that make another model what it is; refuses one that cannot work before it is loaded."""
    description = next((entry for entry in supported if entry["model"].lower() == model_name.lower()), None)
    if description is None:
        raise EmbeddingUnavailable("model_unknown", f"fastembed has no model named {model_name}")
    if description["dim"] != DIMENSION:
        raise EmbeddingUnavailable(
            "model_dimension", f"{model_name} gives {description['dim']} dimensions, not {DIMENSION}"
        )
    return [description["model_file"], *description["additional_files"], "tokenizer.json", "tokenizer_config.json"]


def _vectors(run: Callable[[], Iterable[Any]], expected: int) -> list[list[float]]:
    """Run the encoder and let nothing through that could not be stored or would rank at random."""
    try:
        vectors = [[float(value) for value in vector] for vector in run()]
    except Exception as error:  # whatever the runtime raises means the same to a caller: no vector
        raise EmbeddingUnavailable("embedder_failed", "the model failed on this text") from error
    if len(vectors) != expected:
        raise EmbeddingUnavailable("embedder_failed", f"the model gave {len(vectors)} vectors for {expected} texts")
    for vector in vectors:
        if len(vector) != DIMENSION:
            raise EmbeddingUnavailable("model_dimension", f"the model gives {len(vector)} dimensions, not {DIMENSION}")
        if not all(map(math.isfinite, vector)) or not any(vector):
            raise EmbeddingUnavailable("embedder_failed", "the model gave a vector of zeros or without a number")
    return vectors
