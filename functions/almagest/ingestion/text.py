"""Text as it may be stored: clean, normalised, and recognisable when it comes again."""

import hashlib
import re
import unicodedata

_LINE_END = re.compile(r"\r\n?|[\v\f\x85]")

# What Postgres or UTF-8 refuses (NUL, lone surrogates) and what no reader of text means (controls, noncharacters).
_UNWANTED = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(rf"\U{plane:04x}fffe\U{plane:04x}ffff" for plane in range(17))
    + "]"
)

# Sorting the marks of one letter is quadratic, in Python as in Postgres: a million of them would take a quarter of an
# hour. Thirty is what the Stream-Safe Text Format of Unicode's UAX #15 allows, and more than any language uses.
_TOO_MANY_MARKS = re.compile(rb"[^\x00]{30}([^\x00]+)")

# Characters that are not marks themselves but become marks, and nothing else, by normalisation.
_MARKS_IN_DISGUISE = {0x0F73: 0x0F71, 0x0F75: 0x0F71, 0x0F81: 0x0F71, 0xFF9E: 0x3099, 0xFF9F: 0x309A}


def clean(text: str) -> tuple[str, bool]:
    r"""Text that can be stored, and whether it lost or changed anything beyond its line ends.

    Line ends become ``\n``; control characters other than ``\n`` and ``\t``, lone surrogates, noncharacters and the
    31st and further marks on one letter are removed; the rest is brought into normal form C.

    Parameters
    ----------
    text
        Any Python string, one with lone surrogates included.

    Returns
    -------
    tuple
        The text, which UTF-8 and Postgres accept, and True when a caller should be told that it was changed.

    Examples
    --------
    >>> clean("one\r\ntwo\x00")
    ('one\ntwo', True)
    """
    lines = _LINE_END.sub("\n", text)
    result = unicodedata.normalize("NFC", _limit_marks(_UNWANTED.sub("", lines)))
    return result, result != lines


def content_hash(text: str) -> str:
    """SHA-256 in hex of what a text says, blind to case, width, ligatures and white space.

    Examples
    --------
    >>> content_hash("Straße  12") == content_hash("STRASSE\\n12")
    True
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", _limit_marks(text)).casefold())
    return hashlib.sha256(" ".join(folded.split()).encode("utf-8", "surrogatepass")).hexdigest()


def _limit_marks(text: str) -> str:
    if text.isascii():
        return text
    classes = bytes(map(unicodedata.combining, text.translate(_MARKS_IN_DISGUISE)))
    kept, position = [], 0
    for match in _TOO_MANY_MARKS.finditer(classes):
        kept.append(text[position : match.start(1)])
        position = match.end(1)
    return "".join([*kept, text[position:]]) if kept else text
