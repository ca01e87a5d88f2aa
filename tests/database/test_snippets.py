"""Snippets: the window that says most of the query, and the words of the query in it."""

import time
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from tests.database.support import Org, Server, chunks_of, one_hot, search, write_one

ROOT = Path(__file__).parents[2]


def snippet(server: Server, content: str, query: str) -> tuple[str, list[str]]:
    """A snippet and the words that are marked in it."""
    [(text, marks)] = server.rows("select * from engine.snippet(%s, engine.query_terms(%s))", content, query)
    places = [place for mark in marks for place in mark]
    assert places == sorted(set(places))
    assert all(0 <= place <= len(text) for place in places)
    return text, [text[start:end] for start, end in marks]


@pytest.mark.parametrize(
    ("content", "query", "marked"),
    [
        ("We retry failed requests.", "retrying a failure request", ["retry", "requests"]),
        (
            "Ponies hope; the pony hoped for abilities.",
            "pony hoping ability",
            ["Ponies", "hope", "pony", "hoped", "abilities"],
        ),
        ("He died, dying as all die.", "die", ["died", "dying", "die"]),
        ("The other one does.", "others ones doing the", ["one"]),
        ("An organ of the organization", "organs", ["organ", "organization"]),
        ("RETRY Retry rEtry", "retry", ["RETRY", "Retry"]),
        ("see SID-48 and SID-480, sid", "SID-48", ["SID-48", "SID", "sid"]),
        # what a longer identifier is put together from, and not the shorter one
        ("QRX-4471-B is not QRX-4471.", "QRX-4471", ["QRX", "4471", "QRX-4471"]),
        ("B-QRX-4471, #QRX-4471, QRX-4471#", "QRX-4471", ["QRX", "4471"] * 3),
        ("v1.2.3 or v1.2. Or 1.v1.2", "v1.2", ["v1", "2", "v1.2", "v1", "2"]),
        ("x/QRX-4471, QRX-4471:12, QRX-4471@x", "QRX-4471", ["QRX-4471"] * 3),
        ("--dry-run, no-dry-run", "dry-run", ["dry-run", "dry", "run"]),
        ("編號QRX-4471是", "QRX-4471", ["QRX-4471"]),
        ("call snake_case_name now", "snake_case_name", ["snake_case_name"]),
        ("call snake_case_name now", "cases", ["case"]),
        ("camelCaseName or CamelCase", "case", ["Case", "Case"]),
        ("parseXMLDoc, XMLParser, URLs", "xml", ["XML", "XML"]),
        ("parseXMLDoc by parseXML", "parse docs", ["parse", "Doc", "parse"]),
        ("parseXMLDoc and parsexmldoc", "parseXMLDoc", ["parseXMLDoc", "parsexmldoc"]),
        ("HTTPServer2 of HTTPServer", "server", ["Server"]),
        ("in src/app/main.py:12", "src/app/main.py", ["src/app/main.py"]),
        ("error 0x80070005 (E0425) in v1.2.3", "E0425 0x80070005 v1.2.3", ["0x80070005", "E0425", "v1.2.3"]),
        ("me@example.org, #1234", "#1234 me@example.org", ["me@example.org", "#1234"]),
        ("a.b*c (x) [y] {z} \\ ^ $ | ? +", "a.b*c (x) [y] {z}", ["a.b", "c", "x", "y", "z"]),
        ("caf\u00e9 CAFE cafe\u0301 Ｃａｆｅ", "cafe", ["caf\u00e9", "CAFE", "cafe\u0301", "Ｃａｆｅ"]),
        ("die Stra\u00dfe", "straße", ["Stra\u00dfe"]),
        ("die Stra\u00dfe", "strasse", ["Stra\u00dfe"]),
        ("die STRASSE", "straße", ["STRASSE"]),
        ("takes ~5 minutes", "5 minutes", ["5", "minutes"]),
        ("\ufb01nally … ½ the \ufb02ow ™ ends", "final flow end", ["\ufb01nally", "\ufb02ow", "ends"]),
        ("東京都に住む。京都。", "東京都", ["東京都", "京都"]),
        ("한국어 검색", "검색", ["검색"]),
        ("カタカナ ｶﾀｶﾅ ガ", "カタカナ", ["カタカナ", "ｶﾀｶﾅ"]),
        ("xx ｶﾞｿﾘﾝ, か\u3099く zebra", "ガソリン がく zebra", ["ｶﾞｿﾘﾝ", "か\u3099く", "zebra"]),
        ("我\ufb01ガガ\ufb01語ガ", "ガガ 語ガ", ["ガガ", "語ガ"]),
        ("각 \u1100\u1161\u11a8 각하", "각", ["각", "\u1100\u1161\u11a8", "각"]),
        ("ㄅㄆㄇ ㄅ", "ㄅㄆ", ["ㄅㄆ"]),
        ("ㄅㄆ ㄅ", "ㄅ", ["ㄅ", "ㄅ"]),
        ("\U00020000\U00020001 〆切", "\U00020000\U00020001 〆切", ["\U00020000\U00020001", "〆切"]),
        ("ذهب أحمد", "أحمد", ["أحمد"]),
        ("हिन्दी क़लम", "क़लम", ["क़लम"]),
        ("Привет, мир; привета", "ПРИВЕТ", ["Привет"]),
        ("a\u0001b zebra", "zebra", ["zebra"]),
        ("", "zebra", []),
        ("zebra", "", []),
        ("zebra", "the of", []),
        ("", "", []),
    ],
)
def test_words_are_marked_whose_terms_are_the_querys(
    server: Server, content: str, query: str, marked: list[str]
) -> None:
    assert snippet(server, content, query) == (content, marked)


def test_no_terms_mark_nothing(server: Server) -> None:
    assert server.rows("select * from engine.snippet('zebra', null)") == [("zebra", [])]


def test_marks_are_what_the_tokeniser_makes_of_each_word(server: Server) -> None:
    """For every word of this repository's own documents: marked when its terms meet the query's, and else not."""
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    words = sorted({word for path in documents for word in path.read_text(encoding="utf-8").split() if len(word) < 60})
    assert len(words) > 2000
    wrong = server.rows(
        "with words as (select word, engine.query_terms(word) as terms from unnest(%s::text[]) as word),"
        " pairs as (select w.word, q.terms, w.terms && q.terms as meets from words as w"
        "  join lateral (select o.terms from words as o where o.terms <> '{}'"
        "   order by md5(o.word || w.word) limit 5) as q on true"
        "  union all select w.word, w.terms, w.terms <> '{}' from words as w)"
        " select p.word, p.terms from pairs as p cross join lateral engine.snippet(p.word, p.terms) as s"
        " where (s.marks <> '[]') is distinct from p.meets",
        words,
    )
    assert wrong == []


def test_letters_of_all_scripts_are_marked_where_they_are_terms(server: Server) -> None:
    """Each letter, number and mark of Unicode in a word of its own and inside one; of the many Chinese some."""
    many = [range(0x3500, 0x9F00), range(0xAC20, 0xD780), range(0x20020, 0x2FFF0)]
    # these change once more when they are folded twice, or have a capital that has no small letter of its own
    odd = "\u0f73\u0f75\u0f81\u1e9e"
    letters = [
        letter
        for letter in map(chr, range(0x30000))
        if unicodedata.category(letter)[0] in "LNM" and letter not in odd and not any(ord(letter) in r for r in many)
    ]
    assert len(letters) > 20_000
    wrong = server.rows(
        "with words as (select word, engine.query_terms(word) as terms"
        "  from unnest(%s::text[]) as letter, lateral unnest(array[repeat(letter, 3), 'ab' || letter || 'cd']) as word)"
        " select w.word from words as w cross join lateral engine.snippet(w.word, w.terms) as s"
        " where (s.marks <> '[]') is distinct from (w.terms <> '{}')",
        letters,
    )
    assert wrong == []


def test_the_window_holds_the_most_different_terms(server: Server) -> None:
    filler = "nothing to see here " * 30
    content = f"{filler}zebra zebra zebra {filler}a zebra met a lion and an okapi {filler}lion"
    text, marked = snippet(server, content, "zebra lion okapi")
    assert marked == ["zebra", "lion", "okapi"]
    assert 350 < len(text) <= 400
    assert text in content
    before = text.index("zebra")
    assert abs(before - (len(text) - text.index("okapi") - len("okapi"))) < 30


def test_the_window_is_cut_between_words(server: Server) -> None:
    words = [f"word{number}" for number in range(300)]
    content = " ".join(words)
    for number in (0, 1, 30, 150, 298, 299):
        text, marked = snippet(server, content, f"word{number}")
        assert marked == [f"word{number}"]
        assert set(text.split()) <= set(words)
        assert 380 <= len(text) <= 400
        assert text == text.strip()
    assert snippet(server, content, "zebra")[0] == content[:400].rpartition(" ")[0]


def test_a_text_without_spaces_is_cut_all_the_same(server: Server) -> None:
    text, marked = snippet(server, "あ" * 600 + "東京" + "い" * 600, "東京")
    assert (len(text), marked) == (400, ["東京"])
    text, _ = snippet(server, "x" * 5000, "zebra")
    assert len(text) == 400
    text, marked = snippet(server, "a/" * 300 + "zebra" + "/b" * 300, "zebra")
    assert (len(text), marked) == (400, ["zebra"])


def test_a_mark_longer_than_the_window_is_not_torn(server: Server) -> None:
    for content in ("東京" * 600, "zebra" * 300, "-".join(["zebra"] * 300)):
        text, _ = snippet(server, content, content[:200])
        assert len(text) <= 400


def test_a_search_shows_the_window_and_its_marks(server: Server, org: Org) -> None:
    parts = ["nothing to see. ", "filler words " * 50 + "the zebras crossed " + "more filler " * 40]
    chunks = chunks_of(parts, [None, one_hot(1)])
    chunks[1]["heading_path"] = "Animals > Zebras"
    write_one(server, org.owner, "".join(parts), chunks=chunks)
    [result] = search(server, org.owner, "zebra crossing", one_hot(1))["results"]

    assert [result["snippet"][start:end] for start, end in result["marks"]] == ["zebras", "crossed"]
    start = len(parts[0])
    place = {"position": 1, "start": start, "end": start + len(parts[1]), "heading_path": "Animals > Zebras"}
    assert (result["chunk"], result["version"]) == (place, 1)
    [by_meaning] = search(server, org.owner, None, one_hot(1))["results"]
    assert by_meaning["marks"] == []


def test_snippets_cost_less_than_to_tokenise_their_texts(server: Server) -> None:
    """Ten chunks of 1200 characters take about 1.3 ms on an idle core; to tokenise them takes three times as long."""
    prose = " ".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("docs/**/*.md")))
    texts = [prose[start : start + 1200] for start in range(0, 12_000, 1200)]
    query = "How are private items kept from searches of other people in a large org, and where is it decided?"

    def fastest(statement: str, *parameters: Any) -> float:
        times = []
        for _ in range(15):
            started = time.perf_counter()
            server.rows(statement, *parameters)
            times.append(time.perf_counter() - started)
        return min(times)

    snippets = fastest(
        "select count(s.marks) from unnest(%s::text[]) as t cross join lateral engine.snippet(t, %s) as s",
        *(texts, server.value("select engine.query_terms(%s)", query)),
    )
    terms = fastest("select count(engine.tokenise(t)) from unnest(%s::text[]) as t", texts)
    assert snippets < terms
