"""Properties of chunks that search and storage rely on."""

import time
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almagest.embedding.embedder import Embedder
from almagest.ingestion.chunk import MAX_CHARACTERS, OVERLAP, WINDOW, Chunk, chunk, passage_text
from almagest.settings import Settings

PARAGRAPH = "We moved the queue to Postgres. It was one service less to run, and nobody has missed it since.\n"

pieces = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=40),
    st.sampled_from([" ", "\n", "\n\n", "\t", "# Heading\n\n", PARAGRAPH * 5, "word " * 60]),
    st.sampled_from(["x", " ", "\n", "漢字", "é", "e\u0301", "👩‍👩‍👧‍👦", "a\u0301\u0323", "- item\n"]).flatmap(
        lambda unit: st.integers(1, 1500).map(lambda times: unit * times)
    ),
)
texts = st.lists(pieces, max_size=12).map("".join)


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder(Settings().model_path)


def tokens(embedder: Embedder, title: str | None, chunks: list[Chunk]) -> list[int]:
    """Of what is embedded of each chunk."""
    return embedder.count_tokens([passage_text(title, piece.heading_path, piece.text) for piece in chunks])


def check(text: str, title: str | None = None, embedder: Embedder | None = None) -> None:
    """Everything that must hold for any text."""
    chunks = chunk(text, title, embedder)
    if embedder:
        assert all(count <= embedder.window for count in tokens(embedder, title, chunks))
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
            assert text[before.end : after.start + 1].isspace(), "neighbours without an overlap"


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


# What the model reads (S18)

DENSE = {
    "Chinese": "我们决定使用数据库来保存所有的知识，因为它简单可靠。",
    "Japanese": "データベースを移行することにしました。理由は簡単で、信頼できるからです。",
    "Korean": "데이터베이스를 옮기기로 했습니다. 간단하고 믿을 수 있기 때문입니다. ",
    "code": "if (x[i]==y){return foo(bar->baz);}\n",
    "digits": "48151.62342 99871.00213 ",
    "punctuation": "{}[]()<>!?;:,. ",
    "base64": "aGVsbG8gd29ybGQ+aGVsbG8/d29ybGQ=\n",
    "accents": "ṩ̂ỗ ǖ ",
    "rare words": "xqzjk vwpft ",
}


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("title", [None, "A title", "題" * 500, "뷁" * 500, "# " * 250])
def test_what_is_embedded_of_a_chunk_fits_the_models_window(embedder: Embedder, name: str, title: str | None) -> None:
    text = "# 設計\n\n" + DENSE[name] * (20_000 // len(DENSE[name]))
    check(text, title, embedder)
    shortest = min(len(piece.text) for piece in chunk(text, title, embedder)[:-1])
    assert shortest >= 60, "cut much smaller than the window asks for"


def test_prose_is_cut_as_without_a_model(embedder: Embedder) -> None:
    text = "\n".join(f"Paragraph {number}. {PARAGRAPH * 7}" for number in range(300))
    assert chunk(text, "A title", embedder) == chunk(text)


def test_a_dense_part_leaves_the_rest_as_it_is(embedder: Embedder) -> None:
    prose = PARAGRAPH * 40
    plain, mixed = chunk(prose), chunk(prose + "\n\n" + DENSE["Chinese"] * 100, None, embedder)
    assert mixed[: len(plain) - 1] == plain[:-1]


@given(texts, st.sampled_from([None, "A title", "題" * 500]))
@settings(max_examples=100, deadline=None)
def test_any_text_fits(embedder: Embedder, text: str, title: str | None) -> None:
    check(text, title, embedder)


def test_tokens_are_counted_only_where_they_could_be_too_many(embedder: Embedder) -> None:
    class Counting:
        window = embedder.window
        counted = 0

        def count_tokens(self, texts: Sequence[str]) -> list[int]:
            self.counted += len(texts)
            return embedder.count_tokens(texts)

    model = Counting()
    chunk("A memory of five hundred characters at the most. " * 10, "A title", model)
    assert model.counted == 0
    chunk(PARAGRAPH * 12, "A title", model)
    assert model.counted == 1


@pytest.mark.parametrize("name", DENSE)
def test_half_a_million_dense_characters_in_bounded_time(embedder: Embedder, name: str) -> None:
    """At most 0.9 s on the machine this was written on."""
    text = DENSE[name] * (500_000 // len(DENSE[name]))
    embedder.count_tokens(["loaded"])
    begun = time.monotonic()
    chunk(text, "A title", embedder)
    assert time.monotonic() - begun < 6


def test_a_model_that_reads_little_does_not_make_a_chunk_of_every_letter() -> None:
    class Small:
        window = 8

        def count_tokens(self, texts: Sequence[str]) -> list[int]:
            return [len(text) for text in texts]

    chunks = chunk("漢" * 10_000, None, Small())
    assert all(len(piece.text) >= 60 for piece in chunks[:-1])
