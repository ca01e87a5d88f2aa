"""The item that holds an identifier ranks first, all of two hundred, among near misses and with real vectors."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from almagest.embedding.embedder import Embedder, to_literal
from almagest.settings import Settings
from infra.local.postgres import Postgres
from tests.database.support import Caller, Org, Server, memory, serve, unique_key
from tests.support import Database, clone

# An identifier, and what is written nearly like it.
GIVEN = {
    "SID-48": ["SID-480", "SID-4-8", "SID-49", "SID_48", "ID-48"],
    "ECONNREFUSED": ["ECONNRESET", "ECONNABORTED", "EREFUSED"],
    "ETIMEDOUT": ["ETIME", "ESOCKETTIMEDOUT"],
    "snake_case_name": ["snake_case_names", "snake_case", "case_name", "name_snake_case"],
    "camelCaseName": ["camelCaseNames", "camelCase", "caseName"],
    "HTMLParser": ["HTMLParserError", "HTMLPars", "XMLParser"],
    "src/app/main.py": ["src/app/main.pyc", "src/lib/main.py", "app/main.py", "src/app/main_test.py"],
    "v1.2.3": ["v1.2.30", "v1.2", "v1.2.4", "v1.3.2"],
    "E0425": ["E0426", "E04250", "E0452"],
    "0x80070005": ["0x80072EFD", "0x8007000E", "0x80070057", "0x8007"],
    "0xC0000005": ["0xC0000006", "0xC000000D"],
    "#1234": ["#12345", "#1243", "#123"],
    "anna@example.org": ["ann@example.org", "anna@example.com", "anna@mail.example.org"],
    "https://example.org/a/b-c": [
        "https://example.org/a/b",
        "https://example.org/a/b-c-d",
        "https://example.com/a/b-c",
    ],
    "C++": ["C#", "C", "D++"],
    "F#": ["F", "J#"],
    "node.js": ["node.py", "nodes.js", "next.js"],
    "@scope/pkg": ["@scope/pkgs", "@scopes/pkg", "scope/pkg-lib"],
    "550e8400-e29b-41d4-a716-446655440000": [
        "550e8400-e29b-41d4-a716-446655440001",
        "550e8400-e29b-41d4-a716-446655441000",
    ],
    "192.168.1.10": ["192.168.1.100", "192.168.1.1", "192.168.10.1"],
    "2026-11-30": ["2026-11-03", "2026-10-30", "2025-11-30"],
    "foo::bar()": ["foo::baz()", "foo::bars()", "bar::foo()"],
    "--dry-run": ["--dry-runs", "--dry", "--run-dry"],
    "$HOME": ["$HOMES", "$PATH", "$HOME_DIR"],
    "3.14": ["3.141", "31.4", "3.41"],
    "C:\\Users\\anna\\notes.txt": [
        "C:\\Users\\anna\\note.txt",
        "C:\\Users\\ann\\notes.txt",
        "D:\\Users\\anna\\notes.txt",
    ],
}

ABOUT = [
    "The build stopped with {} and nobody could say why.",
    "We saw {} again after the upgrade of the gateway.",
    "Remember to look at {} before the release.",
    "{} was discussed in the meeting and is done.",
]


@dataclass(frozen=True)
class Told:
    """What is asked for, and the only text that holds it."""

    identifier: str
    text: str


def generated(rng: random.Random) -> dict[str, list[str]]:
    """More of the same, each with what differs from it by one letter or one digit."""
    made: dict[str, list[str]] = {}
    words = ["queue", "token", "cache", "shard", "retry", "index", "batch", "lease", "route", "parse"]
    while len(made) < 200 - len(GIVEN):
        a, b, c = rng.sample(words, 3)
        number, other = rng.sample(range(100, 1000), 2)
        identifier, misses = rng.choice(
            [
                (f"OPS-{number}", [f"OPS-{number}0", f"OPS-{other}", f"OPS_{number}"]),
                (f"{a}_{b}_{number}", [f"{a}_{b}_{other}", f"{b}_{a}_{number}", f"{a}_{b}"]),
                (f"{a}{b.title()}{c.title()}", [f"{a}{c.title()}{b.title()}", f"{a}{b.title()}", f"{b}{c.title()}"]),
                (f"src/{a}/{b}.py", [f"src/{b}/{a}.py", f"src/{a}/{c}.py", f"lib/{a}/{b}.py"]),
                (f"v{number}.4.{other}", [f"v{number}.4.{number}", f"v{other}.4.{number}", f"v{number}.4"]),
                (f"0x{number:08X}", [f"0x{other:08X}", f"0x{number:07X}0", f"0x{number:08X}F"]),
                (f"E{number}{other}", [f"E{other}{number}", f"E{number}", f"E{number}{other}1"]),
                (f"#{number}{other}", [f"#{other}{number}", f"#{number}", f"#{number}{other}7"]),
                (f"{a}.{b}.{c}()", [f"{a}.{c}.{b}()", f"{b}.{a}.{c}()", f"{a}.{b}()"]),
                (f"{a}::{b}::{c}", [f"{a}::{c}::{b}", f"{a}::{b}", f"{c}::{b}"]),
                (f"--{a}-{b}", [f"--{b}-{a}", f"--{a}", f"--{a}-{c}"]),
                (
                    f"10.{number % 256}.{other % 256}.7",
                    [f"10.{other % 256}.{number % 256}.7", f"10.{number % 256}.7.7"],
                ),
                (f"{a}@{b}.example.org", [f"{b}@{a}.example.org", f"{a}@{c}.example.org"]),
                (
                    f"{number:08x}-{other:04x}-4abc",
                    [f"{other:08x}-{number:04x}-4abc", f"{number:08x}-{other:04x}-4abd"],
                ),
            ]
        )
        made.setdefault(identifier, misses)
    return made


@dataclass(frozen=True)
class Library:
    """An org with all the texts in it."""

    server: Server
    caller: Caller
    embedder: Embedder
    told: list[Told]

    def ask(self, query: str) -> list[tuple[str, dict[str, float]]]:
        """Snippets and scores, best first."""
        vector = to_literal(self.embedder.embed_query(query))
        request = {"query": query, "embedding": vector, "model": self.embedder.model, "k": 5}
        results = self.server.call("search", self.caller, request)["results"]
        return [(result["snippet"], result["scores"]) for result in results]


@pytest.fixture(scope="module")
def library(cluster: Postgres, template_database: Database) -> Iterator[Library]:
    rng = random.Random(48)  # noqa: S311
    embedder = Embedder(Settings().model_path)
    everything = GIVEN | generated(rng)
    told = [Told(name, ABOUT[place % len(ABOUT)].format(name)) for place, name in enumerate(everything)]
    held = {one.identifier.lower() for one in told}
    texts = {one.text for one in told}
    for one, misses in zip(told, everything.values(), strict=True):
        template = one.text.replace(one.identifier, "{}")
        texts |= {template.format(miss) for miss in misses if miss.lower() not in held}
    ordered = sorted(texts)
    rng.shuffle(ordered)
    memories = [memory(text, vector) for text, vector in zip(ordered, embedder.embed_passages(ordered), strict=True)]
    with clone(cluster, template_database.name) as copy, serve(copy) as server:
        org = Org(server, "acme")
        for start in range(0, len(memories), 500):
            request = {"memories": memories[start : start + 500], "model": embedder.model, "idempotency": unique_key()}
            server.call("write_memories", org.owner, request)
        server.rows("analyze")
        yield Library(server, org.owner, embedder, told)


@pytest.mark.parametrize("question", ["{}", "error {}", "what do we know about {}?"])
def test_the_item_that_holds_an_identifier_ranks_first(library: Library, question: str) -> None:
    missed = []
    for one in library.told:
        answer = library.ask(question.format(one.identifier))
        if not answer or answer[0][0] != one.text:
            place = next((place for place, (text, _) in enumerate(answer) if text == one.text), None)
            missed.append((one.identifier, place, answer[:1], answer[place] if place else None))
    assert missed == []


def test_there_are_two_hundred(library: Library) -> None:
    assert len(library.told) == 200
    assert library.server.value("select count(*) from almagest.items") > 600


@pytest.mark.parametrize(
    ("query", "identifier"),
    [
        ("main.py", "src/app/main.py"),
        ("refused connections ECONNREFUSED", "ECONNREFUSED"),
        ("snake case name", "snake_case_name"),
        ("HTML parser", "HTMLParser"),
        ("notes.txt", "C:\\Users\\anna\\notes.txt"),
    ],
)
def test_a_query_for_a_part_finds_it(library: Library, query: str, identifier: str) -> None:
    [text] = [one.text for one in library.told if one.identifier == identifier]
    assert text in [found for found, _ in library.ask(query)]


@pytest.mark.parametrize("question", ["{}", "error {}"])
def test_it_ranks_first_in_an_org_of_a_few_items_too(server: Server, library: Library, question: str) -> None:
    """Where every term is frequent, and words say little against a vector."""
    missed = []
    for place, (identifier, misses) in enumerate(GIVEN.items()):
        texts = [ABOUT[number % len(ABOUT)].format(name) for number, name in enumerate([*misses, identifier])]
        vectors = library.embedder.embed_passages(texts)
        org = Org(server, f"small-{place}")
        memories = [memory(text, vector) for text, vector in zip(texts, vectors, strict=True)]
        request = {"memories": memories, "model": library.embedder.model, "idempotency": unique_key()}
        server.call("write_memories", org.owner, request)
        answer = Library(server, org.owner, library.embedder, []).ask(question.format(identifier))
        if not answer or answer[0][0] != texts[-1]:
            missed.append((identifier, answer[:1], [found for found in answer if found[0] == texts[-1]]))
    assert missed == []


@pytest.mark.parametrize("question", ["{}", "error {}", "what does {} mean?"])
@pytest.mark.parametrize(
    ("identifier", "holder", "nearer"),
    [
        (
            "0x80070005",
            "The installer exits with 0x80070005 when access to the folder is denied.",
            "Windows update error 0x80072EFD: cannot connect to the server.",
        ),
        ("SID-48", "Anna owns SID-48 now.", "SID-480: what the error means, and how the error is found."),
        ("E0425", "We renamed it after E0425.", "error E0426: use of undeclared label"),
    ],
)
def test_a_text_that_is_nearer_in_meaning_does_not_outrank_it(
    server: Server, org: Org, library: Library, question: str, identifier: str, holder: str, nearer: str
) -> None:
    texts = [nearer, holder]
    vectors = library.embedder.embed_passages(texts)
    memories = [memory(text, vector) for text, vector in zip(texts, vectors, strict=True)]
    request = {"memories": memories, "model": library.embedder.model, "idempotency": unique_key()}
    server.call("write_memories", org.owner, request)
    answer = Library(server, org.owner, library.embedder, []).ask(question.format(identifier))
    assert answer[0][0] == holder, answer
