"""S18: what stands at the end of a long text is found, by its words and by its meaning, in whatever script."""

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from almagest.embedding.embedder import Embedder, to_literal
from almagest.ingestion.chunk import chunk
from almagest.operations.chunks import cut
from almagest.settings import Settings
from tests.database.support import Org, Server, digest, ids, search, unique_key

# A text of one kind, and a sentence of the same kind about something else.
TEXTS = {
    "Chinese": ("我们决定使用数据库来保存所有的知识，因为它简单可靠。", "猫在月光下的屋顶上唱歌。"),
    "Japanese": ("予算会議開催、来年度計画案承認、担当者決定。", "東京タワーの高さは三百三十三メートルで、塔は赤い。"),
    "code": (
        "if(x[i]==y){z[j]=(a+b)*c-d;}\n",
        "def purge_expired_sessions(redis): ...\n",
    ),
    "digits": ("48151.62342 99871.00213 77120.55910 ", "31415.92653 58979.32384 "),
    "English": ("The quarterly budget was discussed at length and then approved. ", "Otters sleep holding hands. "),
}


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder(Settings().model_path)


def store(server: Server, org: Org, embedder: Embedder, text: str, title: str | None = None) -> str:
    """Write a memory as the write operation does, and return its id."""
    slices = cut(embedder, title, text)
    vectors = embedder.embed_passages([piece.passage for piece in slices])
    chunks = [{**piece.row, "embedding": to_literal(vector)} for piece, vector in zip(slices, vectors, strict=True)]
    memory = {"content": text, "content_hash": digest(text), "title": title, "chunks": chunks}
    request = {"memories": [memory], "model": embedder.model, "atomic": True, "idempotency": unique_key()}
    return str(server.call("write_memories", org.owner, request)["results"][0]["id"])


def nearest(server: Server, org: Org, embedder: Embedder, query: str) -> list[Any]:
    """Item and text of the chunks nearest to a query by vector, nearest first."""
    return server.rows(
        "select k.item_id::text, k.text from almagest.embeddings as e join almagest.chunks as k on k.id = e.chunk_id"
        " where e.org_id = %s order by e.vector operator(extensions.<=>) %s::extensions.halfvec limit 3",
        *(org.id, to_literal(embedder.embed_query(query))),
    )


@pytest.mark.parametrize("name", TEXTS)
def test_a_tail_sentence_is_found(server: Server, org: Org, embedder: Embedder, name: str) -> None:
    unit, tail = TEXTS[name]
    filler = unit * (1180 // len(unit) * 3)
    if name != "Japanese":  # of which a model of English knows too little to compare two texts
        store(server, org, embedder, filler, "Notes")
    item = store(server, org, embedder, filler[: 1180 - len(tail)] + tail, "Notes")

    assert ids(search(server, org.owner, tail))[0] == item  # by words alone
    found, text = nearest(server, org, embedder, tail)[0]
    assert (found, tail.strip() in text) == (item, True)
    request = {"query": tail, "embedding": to_literal(embedder.embed_query(tail)), "model": embedder.model, "k": 2}
    answer = server.call("search", org.owner, request)
    assert (answer["mode"], ids(answer)[0]) == ("hybrid", item)


@pytest.mark.parametrize("name", ["Chinese", "Japanese", "code", "digits"])
def test_by_characters_alone_the_model_would_not_read_it(embedder: Embedder, name: str) -> None:
    """The trap is there: the chunk as it was cut before has the same vector whatever its tail says."""
    unit, tail = TEXTS[name]
    filler = (unit * 100)[: 1080 - len(tail)]
    assert len(chunk(filler + tail)) == 1
    with_tail, without = embedder.embed_passages([filler + tail, filler + unit[: len(tail)]])
    assert sum(a * b for a, b in zip(with_tail, without, strict=True)) > 0.9999
    assert len(chunk(filler + tail, None, embedder)) > 1


def test_headings_are_searched_with_every_chunk_under_them(server: Server, org: Org, embedder: Embedder) -> None:
    prose = "Everything is kept for thirty days and then thrown away by the nightly run. " * 40
    item = store(
        server, org, embedder, f"# Handbook\n\n## Retention of zebrafish\n\n{prose}\n\n## Contacts\n\nAsk Anna."
    )
    paths = server.rows("select heading_path from almagest.chunks where item_id = %s order by position", item)
    assert paths[0] == paths[2] == "Handbook > Retention of zebrafish"
    holding = server.value(
        "select count(*) from almagest.lexical where item_id = %s and terms @@ 'zebrafish'::tsquery", item
    )
    assert holding == paths.count("Handbook > Retention of zebrafish") >= 3
    assert ids(search(server, org.owner, "zebrafish")) == [item]


def test_a_first_heading_that_is_the_title_counts_once(server: Server, org: Org, embedder: Embedder) -> None:
    """Its terms are those of a text under another title of as many words, not two of each."""
    one = store(server, org, embedder, "# Handbook\n\nAsk Anna.", "Handbook")
    count = (
        "select cardinality(positions) from almagest.lexical, unnest(terms) where item_id = %s and lexeme = 'handbook'"
    )
    assert server.value(count, one) == 2  # in the path and in the text
    two = store(server, org, embedder, "# Handbooks\n\nAsk Anna.", "Handbook")
    assert server.value(count, two) == 3


def test_the_text_of_a_heading_path_goes_with_its_item(server: Server, org: Org, embedder: Embedder) -> None:
    item = store(server, org, embedder, "# Zebrafish\n\nAsk Anna.")
    server.call("erase_item", org.owner, {"id": item, "idempotency": unique_key()})
    assert server.rows("select heading_path from almagest.chunks") == []
    assert ids(search(server, org.owner, "zebrafish")) == []


def test_the_bench_cuts_as_a_write_does(embedder: Embedder) -> None:
    door = pytest.importorskip("tests.bench.door")
    text = "# 設計\n\n" + TEXTS["Chinese"][0] * 100
    [memory] = [door._cut({"content": text, "title": "Wanted"})]
    expected = [{**piece.row, "searched": piece.passage} for piece in cut(embedder, "Wanted", text)]
    assert memory["chunks"] == expected
    assert len(expected) > 5


def test_a_heading_path_that_is_missing_is_none(server: Server, org: Org) -> None:
    """An older function that sends no path."""
    item = org.item("a text")
    chunks = [{"position": 0, "start": 0, "end": 6, "text": "a text"}]
    server.rows("select engine.replace_chunks(i, %s, null) from almagest.items as i where id = %s", Jsonb(chunks), item)
    assert server.rows("select heading_path from almagest.chunks where item_id = %s", item) == [None]
