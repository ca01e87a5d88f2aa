"""What may be stored: cleaning and the hash that recognises a text."""

import sys
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almagest.ingestion import text as module
from almagest.ingestion.text import clean, content_hash

anything = st.text(st.characters())  # lone surrogates and controls included


class TestClean:
    """W8: cleaned, and said so."""

    @pytest.mark.parametrize(
        ("given", "expected", "changed"),
        [
            ("", "", False),
            ("plain\n\ttext", "plain\n\ttext", False),
            ("a\r\nb\rc", "a\nb\nc", False),
            ("a\fb\vc\x85d", "a\nb\nc\nd", False),
            ("a\x00b", "ab", True),
            ("a\ud800b", "ab", True),
            ("\x01\x1f\x7f\x80\x9f", "", True),
            ("a\ufdd0\ufffe\U0001ffff\U0010fffeb", "ab", True),
            ("cafe\u0301", "café", True),
            ("café 漢字 🙂 \u200d", "café 漢字 🙂 \u200d", False),
            ("a" + "\u0301\u0323" * 50, unicodedata.normalize("NFC", "a" + "\u0301\u0323" * 15), True),
        ],
    )
    def test_examples(self, given: str, expected: str, changed: bool) -> None:
        assert clean(given) == (expected, changed)

    @given(anything)
    def test_result_can_be_stored(self, text: str) -> None:
        result, changed = clean(text)
        result.encode("utf-8")
        assert not any(unicodedata.category(char) in {"Cc", "Cs"} for char in result if char not in "\n\t")
        assert unicodedata.is_normalized("NFC", result)
        if not changed:
            assert "".join(result.split()) == "".join(text.split())

    @given(anything)
    def test_twice_is_once(self, text: str) -> None:
        result, _ = clean(text)
        assert clean(result) == (result, False)

    @pytest.mark.parametrize("unit", ["\u0301\u0323", "\u0f73", "\uff9e\u0301", "a", "\x00", "\ud800", "\r", "漢"])
    def test_a_million_characters_in_bounded_time(self, unit: str) -> None:
        text = "a" + unit * (1_000_000 // len(unit))
        begun = time.monotonic()
        clean(text)
        content_hash(text)
        assert time.monotonic() - begun < 5

    def test_every_mark_in_disguise_is_known(self) -> None:
        combining = unicodedata.combining
        found = {
            code
            for code in range(sys.maxunicode + 1)
            if not combining(chr(code)) and combining(unicodedata.normalize("NFKD", chr(code))[0])
        }
        assert found == module._MARKS_IN_DISGUISE.keys()


class TestContentHash:
    """W2: the same fact, written another way."""

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("Deploy on Fridays", "  deploy ON\n\tfridays "),
            ("Straße", "STRASSE"),
            ("ＡＢＣ１２", "abc12"),
            ("ﬁle", "file"),
            ("cafe\u0301", "CAFÉ"),
        ],
    )
    def test_same(self, one: str, other: str) -> None:
        assert content_hash(one) == content_hash(other)

    @pytest.mark.parametrize(
        ("one", "other"), [("port 80", "port 81"), ("cafe", "café"), ("on call", "oncall"), ("a.", "a")]
    )
    def test_different(self, one: str, other: str) -> None:
        assert content_hash(one) != content_hash(other)

    def test_known_answer(self) -> None:
        assert content_hash("A  b") == "c8687a08aa5d6ed2044328fa6a697ab8e96dc34291e8c2034ae8c38e6fcc6d65"

    @given(anything)
    @settings(max_examples=50)
    def test_total_and_blind_to_space_around(self, text: str) -> None:
        assert content_hash(text) == content_hash(f" {text}\n")
