"""Text -> chunks: slices at natural boundaries that overlap a little, every character in one of them."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from almagest.ingestion.headings import Headings

MAX_CHARACTERS = 1200
OVERLAP = 120
# Bytes of what is embedded in front of a chunk, title and headings together: a token is at least a byte, so more than
# half of a window of 512 is always for the text.
MAX_PREFIX = 240
# No chunk is cut smaller for its tokens: what is left of the window holds so many characters of any script.
MIN_CHARACTERS = 60

# The splitter's time grows with the square of a stretch without a boundary (7 s for a word of 1,000,000 characters),
# so it is shown the text through a window: 0.3 s for the same word, and the same cuts in ordinary text.
WINDOW = 32 * MAX_CHARACTERS
# Chunks whose tokens are counted together.
STRIDE = 256
# What a model adds to a text of its own: a begin, an end, and a space before the first word.
SPECIAL_TOKENS = 4

_WORD_START = re.compile(r"(?<!\S)\S")
_ZERO_WIDTH_JOINER = "\u200d"


class Model(Protocol):
    """What is asked of the model that embeds the chunks."""

    @property
    def window(self) -> int:
        """How many tokens of a text it reads; what is behind them is in no vector."""
        ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has, those included that the model adds."""
        ...


@dataclass(frozen=True, slots=True)
class Chunk:
    """A searchable slice of a text.

    Parameters
    ----------
    position
        Number of the chunk within its text, from 0.
    start, end
        Offsets in characters; ``text`` is the source's ``[start:end]``.
    text
        1 to 1200 characters, not all of them white space.
    heading_path
        The Markdown headings above it, as in ``Guide > Setup``, at most 200 characters; None where there are none.
    """

    position: int
    start: int
    end: int
    text: str
    heading_path: str | None = None


def chunk(text: str, title: str | None = None, model: Model | None = None) -> list[Chunk]:
    """Cut a text into chunks.

    A chunk begins up to 120 characters, from a word's start where there is one, before its predecessor's end. A piece
    of white space alone makes no chunk. Where 1200 characters are more tokens than the model reads, as in Chinese, code
    and digits, the chunk is cut into smaller ones, which overlap less.

    Parameters
    ----------
    text
        Clean text of any length.
    title
        The item's, which is embedded with each chunk and takes its share of the model's window.
    model
        The one that will embed the chunks; without it only characters are counted.

    Returns
    -------
    list
        In order; empty for a text without anything but white space.
    """
    headings = Headings(text)
    spans = _spans(text, 0, _pieces(text, 0, len(text), MAX_CHARACTERS - OVERLAP), OVERLAP)
    if model:

        def passage(span: _Span) -> str:
            return passage_text(title, headings.path_at(span.own), _slice(text, span))

        spans = _fitting(text, spans, passage, model)
    return [
        Chunk(position, span.start, span.end, _slice(text, span), headings.path_at(span.own))
        for position, span in enumerate(spans)
    ]


def passage_text(title: str | None, heading_path: str | None, text: str) -> str:
    """What is embedded of a chunk: its item's title, and the headings above it, say what the slice is about."""
    if title and heading_path and f"{heading_path} > ".startswith(f"{title} > "):
        title = None  # a document whose first heading is its title
    prefix = "\n".join(part for part in (title, heading_path) if part)
    prefix = prefix.encode()[:MAX_PREFIX].decode(errors="ignore")
    return f"{prefix}\n{text}" if prefix else text


class _Span(NamedTuple):
    """Offsets of a chunk: from ``start`` to ``own`` it repeats the end of its predecessor."""

    start: int
    own: int
    end: int


def _slice(text: str, span: _Span) -> str:
    return text[span.start : span.end]


def _spans(text: str, earliest: int, pieces: Iterable[tuple[int, int]], overlap: int) -> list[_Span]:
    """Chunks whose own parts are the pieces, none beginning before ``earliest``."""
    spans: list[_Span] = []
    for own, end in pieces:
        if text[own:end].isspace():
            continue
        start = _overlap_start(text, max(earliest, own - overlap), own)
        if spans and spans[-1].start == start:
            spans.pop()  # a predecessor so short that it lies whole within this one
            own = start
        spans.append(_Span(start, own, end))
        earliest = own
    return spans


def _fitting(text: str, spans: list[_Span], passage: Callable[[_Span], str], model: Model) -> list[_Span]:
    """The chunks, those cut smaller whose passages are more than the model reads."""
    counts: dict[_Span, int] = {}
    while True:
        unknown = [span for span in spans if span not in counts]
        if not unknown:
            return spans
        for first in range(0, len(unknown), STRIDE):
            stride = unknown[first : first + STRIDE]
            counts |= zip(stride, _tokens([passage(span) for span in stride], model), strict=True)
        spans = _settled(text, [part for span in spans for part in _parts(text, span, counts[span], model.window)])


def _parts(text: str, span: _Span, tokens: int, window: int) -> list[_Span]:
    """A chunk of so many tokens, or smaller ones in its place where these are more than the window."""
    if tokens <= window or span.end - span.own <= MIN_CHARACTERS:
        return [span]
    # A little less than the share that would fit if tokens were spread evenly; a ninth of it again is overlap.
    share = max(MIN_CHARACTERS, int((span.end - span.own) * min(0.9, 0.8 * window / tokens)))
    return _spans(text, span.start, _pieces(text, span.own, span.end, share), min(OVERLAP, share // 9))


def _settled(text: str, spans: Sequence[_Span]) -> list[_Span]:
    """The same chunks, none beginning before its predecessor's own part, which may have become smaller."""
    settled: list[_Span] = []
    for span in spans:
        start, own = span.start, span.own
        if settled and start < settled[-1].own:
            start = _overlap_start(text, settled[-1].own, own)
        if settled and start == settled[-1].start:
            settled.pop()
            own = start
        settled.append(_Span(start, own, span.end))
    return settled


def _tokens(passages: Sequence[str], model: Model) -> list[int]:
    """Tokens of each passage, counted only where they could be more than the model reads.

    A token is at least a byte, so what has fewer bytes fits for certain. (That spares most memories the count; for a
    chunk of 1200 characters no bound is as sure, and counting takes 0.2 s a million characters of prose, where
    embedding them takes a minute.)
    """
    counts = [len(passage.encode("utf-8", "surrogatepass")) + SPECIAL_TOKENS for passage in passages]
    long = [place for place, count in enumerate(counts) if count > model.window]
    for place, count in zip(long, model.count_tokens([passages[place] for place in long]), strict=True):
        counts[place] = count
    return counts


def _pieces(text: str, start: int, end: int, capacity: int) -> Iterator[tuple[int, int]]:
    """Offsets of pieces of ``[start:end]`` that follow one another without a gap, cut at the best boundaries."""
    # Imported here: only writing needs it.
    from semantic_text_splitter import TextSplitter

    splitter = TextSplitter(capacity, trim=False)
    while start < end:
        pieces = splitter.chunks(text[start : min(start + WINDOW, end)])
        if start + WINDOW < end:
            # The window's edge cut the last piece, not the text: it is cut anew at the head of the next window.
            pieces.pop()
        for piece in pieces:
            yield start, start + len(piece)
            start += len(piece)


def _overlap_start(text: str, earliest: int, start: int) -> int:
    """Where a chunk whose own part begins at ``start`` shall begin: as early as it may without halving a word."""
    word = _WORD_START.search(text, earliest, start)
    if word:
        return word.start()
    # A script without spaces, or one long word: then at least no letter without its marks.
    return next((at for at in range(earliest, start) if not _continues(text, at)), earliest)


def _continues(text: str, at: int) -> bool:
    """Whether the character belongs to the one before it: a mark, or either side of a joiner."""
    return unicodedata.category(text[at]).startswith("M") or _ZERO_WIDTH_JOINER in text[max(at - 1, 0) : at + 1]
