"""A corpus of any size in natural words, made of the texts of the collections.

How it comes about, all from one seed, block by block, so that a small corpus is the beginning of a large one:

- The sentences of Cranfield, LoCoMo and the judged notes are grouped by their real vectors into topics.
- Half of the chunks are messages of one or two sentences, in conversations of twenty; half are slices of documents of
  one to five chunks, four to seven sentences each. A conversation or a document has one topic, which is drawn by Zipf's
  law; four sentences of five are of it, the fifth is any other.
- One word in seven is replaced by one from anywhere, and so as frequent as it is in the texts; one in fifty is a name
  or an identifier out of an endless list, drawn by a power law. So frequent words stay as frequent as they are in the
  texts, no two chunks are alike, and the vocabulary goes on growing.
- A vector is the mean of its sentences' real vectors, mixed with another sentence's and with noise.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from tests.bench import vectors
from tests.bench.datasets import read_all

SEED = 20261130
BLOCK = 10_000
TOPICS = 200
CONVERSATION = 20
OWN_TOPIC, REPLACED, INVENTED = 0.8, 1 / 7, 1 / 50
OTHER_SENTENCE, NOISE = 0.3, 0.2  # lengths of what is added to a unit vector

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+|\s+\.\s+")
_SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnprstvwxz" for vowel in "aeiou"]

Halves = NDArray[np.float16]


@dataclass(frozen=True)
class Item:
    """One memory or document on its way into the tables.

    Attributes
    ----------
    chunks
        Its slices in order; a message has one.
    conversation, position
        Of a message; None for a document.
    """

    id: UUID
    topic: int
    chunks: list[str]
    conversation: str | None = None
    position: int | None = None


@dataclass(frozen=True)
class Block:
    """A run of whole items, and the vectors of their chunks, shape (chunks, 384), unit length."""

    items: list[Item]
    vectors: Halves


@dataclass(frozen=True)
class Base:
    """The sentences that everything is made of, each as numbers of words, with unit vectors and in topics."""

    words: list[str]
    sentences: list[NDArray[np.int32]]
    vectors: vectors.Vectors
    topics: list[NDArray[np.int64]]

    @cached_property
    def running_words(self) -> NDArray[np.int32]:
        """All sentences in a row: a random place in it is a word as frequent as in the texts."""
        return np.concatenate(self.sentences)


def read_base() -> Base:
    """Cut the collections' texts into sentences, embed these once, and group them."""
    texts = [memory["content"] for collection in read_all() for memory in collection.memories]
    sentences = list(dict.fromkeys(s.strip() for text in texts for s in _SENTENCE_END.split(text)))
    sentences = [sentence for sentence in sentences if 4 <= len(sentence.split()) <= 40]
    embedded = vectors.of_passages(sentences, "the corpus's sentences")
    embedded /= np.linalg.norm(embedded, axis=1, keepdims=True)
    words = sorted({word for sentence in sentences for word in sentence.split()})
    number = {word: place for place, word in enumerate(words)}
    as_numbers = [np.array([number[word] for word in sentence.split()], np.int32) for sentence in sentences]
    return Base(words, as_numbers, embedded, _group(embedded))


def blocks(base: Base, chunks: int, *, stream: int = 0, topics: int = TOPICS) -> Iterator[Block]:
    """Blocks of 10,000 chunks, the last one with what is left.

    Parameters
    ----------
    chunks
        How many in all.
    stream
        Another number gives another corpus of the same kind.
    topics
        How many of the topics it is about.
    """
    for number, start in enumerate(range(0, chunks, BLOCK)):
        yield _block(base, min(BLOCK, chunks - start), default_rng([SEED, stream, number]), number, topics)


def invented(rank: int) -> str:
    """A name, or for each fourth an identifier such as KUVO-1234, that is the same for the same rank."""
    if rank % 4 == 0:
        return f"{spelt(rank % 8009).upper()}-{rank // 4 % 9000 + 1000}"
    return spelt(rank).capitalize()


def spelt(number: int) -> str:
    """A number in syllables, two at the least."""
    syllables: list[str] = []
    while number or len(syllables) < 2:
        number, syllable = divmod(number, len(_SYLLABLES))
        syllables.append(_SYLLABLES[syllable])
    return "".join(syllables)


def _group(embedded: vectors.Vectors) -> list[NDArray[np.int64]]:
    """Spherical k-means; the members of each topic in a random order, the largest topic first."""
    random = default_rng(SEED)
    centres = embedded[random.choice(len(embedded), TOPICS, replace=False)]
    for _ in range(10):
        nearest = np.argmax(embedded @ centres.T, axis=1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, embedded)
        centres = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
    members = [random.permutation(np.flatnonzero(nearest == topic)) for topic in range(TOPICS)]
    return sorted((m for m in members if len(m) >= 10), key=len, reverse=True)


def _block(base: Base, chunks: int, random: Generator, number: int, topics: int) -> Block:
    items: list[Item] = []
    means: list[vectors.Vectors] = []

    def write(topic: int, count: int, low: int, high: int) -> list[str]:
        written = []
        for _ in range(count):
            chosen = _sentences(base, topic, int(random.integers(low, high + 1)), random)
            written.append(_text(base, chosen, random))
            means.append(base.vectors[chosen].mean(axis=0))
        return written

    messages = chunks // 2
    for place in range(messages):
        if place % CONVERSATION == 0:
            topic = _zipf(topics, random)
        name = f"{number}/{place // CONVERSATION}"
        text = write(topic, 1, 1, 2)
        items.append(Item(_uuid(random), topic, text, name, place % CONVERSATION))
    left = chunks - messages
    while left:
        size = min(left, int(random.integers(1, 6)))
        topic = _zipf(topics, random)
        items.append(Item(_uuid(random), topic, write(topic, size, 4, 7)))
        left -= size
    return Block(items, _vectors(base, np.array(means), random))


def _sentences(base: Base, topic: int, count: int, random: Generator) -> NDArray[np.int64]:
    members = base.topics[topic % len(base.topics)]
    own = members[random.integers(0, len(members), count)]
    other = random.integers(0, len(base.sentences), count)
    return np.where(random.random(count) < OWN_TOPIC, own, other)


def _text(base: Base, chosen: NDArray[np.int64], random: Generator) -> str:
    words = np.concatenate([base.sentences[sentence] for sentence in chosen])
    replaced = random.random(len(words)) < REPLACED
    words[replaced] = base.running_words[random.integers(0, len(base.running_words), int(replaced.sum()))]
    text = [base.words[word] for word in words]
    for place in np.flatnonzero(random.random(len(words)) < INVENTED):
        text[place] = invented(int(random.pareto(0.5) * 300))
    return " ".join(text)


def _vectors(base: Base, means: vectors.Vectors, random: Generator) -> Halves:
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    noise = random.standard_normal(means.shape, np.float32)
    noise *= NOISE / np.linalg.norm(noise, axis=1, keepdims=True)
    mixed = means + OTHER_SENTENCE * base.vectors[random.integers(0, len(base.vectors), len(means))] + noise
    halves: Halves = (mixed / np.linalg.norm(mixed, axis=1, keepdims=True)).astype(np.float16)
    return halves


def _zipf(count: int, random: Generator) -> int:
    """A rank below count, the r-th with a weight of 1 / r."""
    return min(int((count + 1) ** random.random()) - 1, count - 1)


def _uuid(random: Generator) -> UUID:
    return UUID(bytes=random.bytes(16), version=4)
