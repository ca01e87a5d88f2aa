"""Markdown headings, and the path of them that leads to a place in a text."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almagest.ingestion.chunk import chunk, passage_text
from almagest.ingestion.headings import MAX_PATH, Headings

GUIDE = """Before any.

Guide
=====

## Setup ##

Run it.

```sh
# not a heading
Neither
=======
~~~
```

### C# notes

Text of the notes.

Second part
-----------

The end.
"""


def path(text: str, at: str) -> str | None:
    """Path at the first place of `at`."""
    return Headings(text).path_at(text.index(at))


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("Before", None),
        ("=====", "Guide > Setup"),
        ("Run it", "Guide > Setup"),
        ("# not a", "Guide > Setup"),
        ("Neither", "Guide > Setup"),
        ("Text of", "Guide > Setup > C# notes"),
        ("The end", "Guide > Second part"),
    ],
)
def test_the_path_is_that_of_the_section(at: str, expected: str | None) -> None:
    assert path(GUIDE, at) == expected


def test_a_slice_that_begins_with_headings_belongs_to_the_deepest() -> None:
    text = "# One\n\n\n## Two\n### Three\ntext\n## Four\n"
    headings = Headings(text)
    assert headings.path_at(0) == "One > Two > Three"
    assert headings.path_at(text.index("\n\n## Two")) == "One > Two > Three"
    assert headings.path_at(text.index("text")) == "One > Two > Three"
    assert headings.path_at(text.index("## Four")) == "One > Four"
    assert headings.path_at(len(text)) == "One > Four"
    assert path("# a\n## b\n## c\nX", "# a") == "a > b"


@pytest.mark.parametrize(
    "text",
    [
        "#hashtag\nX",
        "####### seven\nX",
        "    # indented code\nX",
        "\t# indented code\nX",
        "#1234 is fixed\nX",
        "> # quoted\nX",
        "- # listed\nX",
        "```\n# fenced\n```\nX",
        "~~~~ python\n# fenced\n~~~\n# still\n~~~~\nX",
        "```\n# never closed\nX",
        "   ```\n   # in a fence of a list\n   ```\nX",
        "text\n\n---\nX",
        "- item\n---\nX",
        "1. item\n---\nX",
        "> quoted\n---\nX",
        "| a table |\n---\nX",
        "    code\n---\nX",
        "a\nb\nc, a paragraph above a rule\n---\nX",
        "long " * 100 + "\n---\nX",
        "---\ntitle: front matter\n---\nX",
        "===\nX",
        "#\nX",
        "## ##\nX",
    ],
)
def test_what_is_no_heading(text: str) -> None:
    assert path(text, "X") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# a\nX", "a"),
        ("   #   a   b  \nX", "a b"),
        ("# a #\nX", "a"),
        ("# a#\nX", "a#"),
        ("# C# ##\nX", "C#"),
        ("a\n==\nX", "a"),
        ("a\nb\n---\nX", "a b"),
        ("---\ntitle: front matter\n---\n# a\nX", "a"),
        ("---\ntitle: front matter\n---\na\n---\nX", "a"),
        ("# a\nb\n---\nX", "a > b"),
        ("``` a ` b\n# a\nX", "a"),
        ("```\n```\n# a\nX", "a"),
        ("## a\n# b\nX", "b"),
        ("### a\n## b\nX", "b"),
        ("# 設計\n## ÜBER\nX", "設計 > ÜBER"),
    ],
)
def test_what_is_one(text: str, expected: str) -> None:
    assert path(text, "X") == expected


def test_a_long_path_loses_its_outermost_headings() -> None:
    outer, inner = "o" * 150, "i" * 150
    assert path(f"# {outer}\n## {inner}\nX", "X") == inner
    assert path(f"# {'w' * 500}\nX", "X") == "w" * MAX_PATH


@given(st.lists(st.sampled_from([*"#=-`~> \t|\n", "\n", "\n\n", "```", "---\n", "a", "# a\n", "1. "]), max_size=60))
@settings(max_examples=500, deadline=None)
def test_any_text_has_paths_of_bounded_length(parts: list[str]) -> None:
    text = "".join(parts)
    headings = Headings(text)
    for at in range(len(text) + 1):
        found = headings.path_at(at)
        assert found is None or 0 < len(found) <= MAX_PATH
        assert found is None or found == " ".join(found.split())


@pytest.mark.parametrize(
    "text",
    [
        "#" * 10**6,
        "# " * 500_000,
        "# a\n" * 250_000,
        "a\n-\n" * 250_000,
        "a\n--\n" * 200_000,
        "-" * 10**6,
        "-\n" * 500_000,
        "`" * 10**6,
        "```\n" * 250_000,
        " \t" * 500_000,
        "a" * 10**6 + "\n---",
        "#\t" + "\t" * 10**6,
        "# a" + " #" * 500_000,
    ],
)
def test_a_million_characters_in_bounded_time(text: str) -> None:
    begun = time.monotonic()
    chunks = chunk(text)
    assert time.monotonic() - begun < 5
    assert all(len(piece.heading_path or "") <= MAX_PATH for piece in chunks)


def test_each_chunk_has_the_path_of_where_its_own_part_begins() -> None:
    text = "# Guide\n\n" + "".join(
        f"## Part {number}\n\n" + f"Sentence {number}. " * 150 + "\n\n" for number in range(6)
    )
    chunks = chunk(text)
    assert chunks[0].heading_path == "Guide > Part 0"
    assert {piece.heading_path for piece in chunks} >= {f"Guide > Part {number}" for number in range(5)}
    last = chunks[-1]
    assert last.heading_path == "Guide > Part 5"
    assert chunk("no heading")[0].heading_path is None


def test_what_is_embedded_says_title_and_headings_once() -> None:
    assert passage_text(None, None, "text") == "text"
    assert passage_text("Title", None, "text") == "Title\ntext"
    assert passage_text("Title", "Guide > Setup", "text") == "Title\nGuide > Setup\ntext"
    assert passage_text("Guide", "Guide > Setup", "text") == "Guide > Setup\ntext"
    assert passage_text("Guide", "Guide", "text") == "Guide\ntext"
    assert passage_text("Guide", "Guidelines", "text") == "Guide\nGuidelines\ntext"
    assert passage_text("題" * 500, "path", "text") == "題" * 80 + "\ntext"
