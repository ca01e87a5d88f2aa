"""Properties of chunks that search and storage rely on."""

import time
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almagest.ingestion.chunk import MAX_CHARACTERS, OVERLAP, WINDOW, chunk

PARAGRAPH = "We moved the queue to Postgres. It was one service less to run, and nobody has missed it since.\n"

pieces = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=40),
    st.sampled_from([" ", "\n", "\n\n", "\t", "# Heading\n\n", PARAGRAPH * 5, "word " * 60]),
    st.sampled_from(["x", " ", "\n", "漢字", "é", "e\u0301", "👩‍👩‍👧‍👦", "a\u0301\u0323", "- item\n"]).flatmap(
        lambda unit: st.integers(1, 1500).map(lambda times: unit * times)
    ),
)
texts = st.lists(pieces, max_size=12).map("".join)


def check(text: str) -> None:
    """Everything that must hold for any text."""
    chunks = chunk(text)
    covered = 0
    for position, piece in enumerate(chunks):
        assert piece.position == position
        assert piece.text == text[piece.start : piece.end]
        assert 0 < len(piece.text) <= MAX_CHARACTERS
        assert not piece.text.isspace()
        if piece.start > covered:
            assert text[covered : piece.start].isspace(), "a gap that is not white space"
        covered = piece.end
    assert not text[covered:].strip()
    for before, after in pairwise(chunks):
        assert before.start < after.start
        assert before.end < after.end
        assert before.end - after.start <= OVERLAP
        if before.end <= after.start:
            assert text[before.end : after.start + OVERLAP].isspace(), "neighbours without an overlap"


@given(texts)
@settings(max_examples=200, deadline=None)
def test_any_text(text: str) -> None:
    check(text)
    assert chunk(text) == chunk(text)


@pytest.mark.parametrize("text", ["", " ", "\n\n\t", " " * 5000])
def test_nothing_but_space_makes_no_chunk(text: str) -> None:
    assert chunk(text) == []


def test_a_short_text_is_one_chunk_as_it_is() -> None:
    [only] = chunk("  one line \n")
    assert (only.start, only.end, only.text) == (0, 12, "  one line \n")


def test_cuts_at_paragraphs_and_overlaps_from_a_word() -> None:
    text = "\n".join([PARAGRAPH * 6] * 8)
    for before, after in pairwise(chunk(text)):
        assert before.text.endswith("\n")
        assert text[after.start - 1].isspace()
        assert not text[after.start].isspace()
        assert 60 < before.end - after.start <= OVERLAP


@pytest.mark.parametrize("unit", ["e\u0301", "👩‍👩‍👧‍👦", "نَّ", "क्षि"])
def test_letters_keep_their_marks(unit: str) -> None:
    for piece in chunk(unit * 2000):
        assert unicodedata.category(piece.text[0])[0] != "M"
        assert piece.text[0] != "\u200d"
        assert piece.text[-1] != "\u200d"


def test_cuts_do_not_depend_on_where_the_text_is_looked_at_through_the_window() -> None:
    text = "\n".join(f"Paragraph {number}. {PARAGRAPH * 7}" for number in range(3 * WINDOW // 700))
    shift = chunk(text)[3].end
    ends = {piece.end for piece in chunk(text)}
    assert {piece.end + shift for piece in chunk(text[shift:])} <= ends


@pytest.mark.parametrize(
    "text",
    [
        "x" * 100_000,
        "x" * 1_000_000,
        " " * 1_000_000,
        "\n" * 999_999 + "x",
        "漢字かな交じり文。" * 111_111,
        "".join(f"word{number} " for number in range(100_000)),
        "a" + "\u0301" * 100_000,
        (PARAGRAPH * 9 + "\n") * 1_150,
    ],
    ids=["a word of 100,000", "a word", "spaces", "newlines", "cjk", "one sentence", "marks", "prose"],
)
def test_a_million_characters_in_bounded_time(text: str) -> None:
    """W8, S10: at most 0.3 s on the machine this was written on; without the window a word took 7."""
    begun = time.monotonic()
    chunk(text)
    assert time.monotonic() - begun < 4
    check(text)
