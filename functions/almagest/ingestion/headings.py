"""Markdown text -> where its headings are, and the path of headings that leads to a place in it."""

import re
from bisect import bisect_right
from dataclasses import dataclass

MAX_PATH = 200
MAX_LINES = 2
SEPARATOR = " > "

# Lines that may begin or end something: an ATX heading, the line under a Setext heading, a code fence. Each alternative
# goes through a line once, so that no text makes the search go back.
_LINE = re.compile(
    r"^ {0,3}(?:(?P<marks>\#{1,6})(?:[ \t]+(?P<words>.*))?|(?P<under>={2,}|-{2,})[ \t]*"
    r"|(?P<fence>`{3,}|~{3,})(?P<info>.*))$",
    re.MULTILINE,
)
# What a paragraph's line does not begin with, so that a line of dashes below it is a rule or the end of a table.
_NO_PARAGRAPH = re.compile(r" {4}|\t| {0,3}(?:[>|]|[-*+] |\d{1,9}[.)] )")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading, and the path down to it.

    Parameters
    ----------
    start, end
        Offsets in characters of its first line's begin and its last line's end.
    depth
        How many headings it stands under.
    path
        These and its own, as in ``Guide > Setup > Linux``; at most 200 characters.
    """

    start: int
    end: int
    depth: int
    path: str


class Headings:
    """The headings of one text, in order.

    ATX (``## Setup``) and Setext headings (underlined with ``=`` or ``-``) as CommonMark has them; what stands in a
    fenced or indented code block, in a list or a quotation, or in front matter is none.

    Parameters
    ----------
    text
        Clean text of any length, Markdown or not.

    Examples
    --------
    >>> Headings("# Guide\n\nHello.\n\n## Setup\n\nRun it.").path_at(25)
    'Guide > Setup'
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._headings = _find(text)
        self._starts = [heading.start for heading in self._headings]

    def path_at(self, start: int) -> str | None:
        """Path of the section in which a slice that begins at ``start`` lies; None before the first heading.

        A slice that begins with a heading and those under it belongs to the last of them.
        """
        if not self._headings:
            return None
        while start < len(self._text) and self._text[start].isspace():
            start += 1
        at = bisect_right(self._starts, start) - 1
        if at < 0:
            return None
        if self._headings[at].end >= start:
            while at + 1 < len(self._headings) and self._is_opened_at_once(at + 1):
                at += 1
        return self._headings[at].path

    def _is_opened_at_once(self, at: int) -> bool:
        """Whether a heading stands under the one before it, and nothing between them."""
        before, this = self._headings[at - 1 : at + 1]
        return this.depth > before.depth and not self._text[before.end : this.start].strip()


def _find(text: str) -> list[Heading]:
    found: list[Heading] = []
    above: list[tuple[int, str]] = []
    fence = ""
    position = _after_front_matter(text)
    for line in _LINE.finditer(text, position):
        if fence:
            if line["fence"] and line["fence"].startswith(fence) and not line["info"].strip():
                fence = ""
                position = line.end()
            continue
        start, level, words = line.start(), 0, ""
        if line["marks"]:
            level, words = len(line["marks"]), _without_closing_marks(line["words"] or "")
        elif line["under"]:
            level = 1 if line["under"].startswith("=") else 2
            start, words = _paragraph_before(text, position, line.start())
        elif line["fence"][0] == "~" or "`" not in line["info"]:
            fence = line["fence"]
        if words:
            above = [*(outer for outer in above if outer[0] < level), (level, " ".join(words.split()))]
            found.append(Heading(start, line.end(), len(above) - 1, _path([words for _, words in above])))
        if words or line["marks"]:
            position = line.end()
    return found


def _after_front_matter(text: str) -> int:
    """Where the text begins behind a block of metadata between lines of three dashes, if it begins with one."""
    if not text.startswith("---\n"):
        return 0
    end = text.find("\n---\n", 3)
    return 0 if end < 0 else end + 5


def _without_closing_marks(words: str) -> str:
    words = words.strip()
    bare = words.rstrip("#")
    return bare.rstrip() if not bare or bare[-1] in " \t" else words


def _paragraph_before(text: str, earliest: int, under: int) -> tuple[int, str]:
    """Begin and words of the paragraph that a line of = or - makes a heading; no words where there is none."""
    lines: list[str] = []
    start = under
    # A heading is a line or two: what is longer is a paragraph above a rule.
    while start > earliest and len(lines) <= MAX_LINES:
        looked_at = max(earliest, start - 1 - MAX_PATH)
        before = text.rfind("\n", looked_at, start - 1)
        if before < 0 and looked_at > earliest:
            return under, ""  # a line longer than any heading
        begin = looked_at if before < 0 else before + 1
        line = text[begin : start - 1]
        if not line.strip() or _UNDERLINE.fullmatch(line):
            break
        if _NO_PARAGRAPH.match(line):
            return under, ""
        lines.insert(0, line)
        start = begin
    return (start, " ".join(lines)) if 0 < len(lines) <= MAX_LINES else (under, "")


def _path(headings: list[str]) -> str:
    """The headings joined, the outermost left out where they are too long together."""
    for first in range(len(headings)):
        path = SEPARATOR.join(headings[first:])
        if len(path) <= MAX_PATH:
            return path
    return headings[-1][:MAX_PATH]
