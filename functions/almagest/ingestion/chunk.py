"""Text -> chunks: slices at natural boundaries that overlap a little, every character in one of them."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

MAX_CHARACTERS = 1200
OVERLAP = 120

# The splitter's time grows with the square of a stretch without a boundary (7 s for a word of 1,000,000 characters),
# so it is shown the text through a window: 0.3 s for the same word, and the same cuts in ordinary text.
WINDOW = 32 * MAX_CHARACTERS

_WORD_START = re.compile(r"(?<!\S)\S")
_ZERO_WIDTH_JOINER = "\u200d"


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
    """

    position: int
    start: int
    end: int
    text: str


def chunk(text: str) -> list[Chunk]:
    """Cut a text into chunks.

    A chunk begins up to 120 characters, from a word's start where there is one, before its predecessor's end. A piece
    of white space alone makes no chunk.

    Parameters
    ----------
    text
        Clean text of any length.

    Returns
    -------
    list
        In order; empty for a text without anything but white space.
    """
    chunks: list[Chunk] = []
    previous = 0
    for start, end in _pieces(text):
        if text[start:end].isspace():
            continue
        begin = _overlap_start(text, max(previous, start - OVERLAP), start)
        if chunks and chunks[-1].start == begin:
            chunks.pop()  # a predecessor so short that it lies whole within this one
        chunks.append(Chunk(len(chunks), begin, end, text[begin:end]))
        previous = start
    return chunks


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Offsets of pieces that follow one another without a gap, cut at the best boundaries that fit."""
    # Imported here: only writing needs it.
    from semantic_text_splitter import TextSplitter

    splitter = TextSplitter(MAX_CHARACTERS - OVERLAP, trim=False)
    start = 0
    while start < len(text):
        pieces = splitter.chunks(text[start : start + WINDOW])
        if start + WINDOW < len(text):
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
