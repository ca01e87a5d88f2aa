"""What is asked of a corpus: words by how frequent they are, runs of words, and real questions, with vectors."""

import re
from collections import Counter
from dataclasses import dataclass

from numpy.random import Generator, default_rng

from almagest.embedding.embedder import to_literal
from tests.bench import vectors
from tests.bench.cluster import Connection
from tests.bench.corpus import BLOCK, SEED, Base, blocks
from tests.bench.datasets import read_cranfield, read_locomo

EACH = 40
# In how many of the corpus's first 10,000 chunks a word stands.
RARE, MEDIUM, COMMON = range(1, 6), range(20, 201), range(500, BLOCK)

_WORD = re.compile(r"[a-z]{3,}")


@dataclass(frozen=True)
class Query:
    """A query of a class, as text, as a vector, and as the terms that the engine makes of it."""

    kind: str
    text: str
    vector: str
    terms: list[str]


def read_queries(base: Base, connection: Connection) -> list[Query]:
    """The same 40 of each class for a corpus of any size: rare, mixed, common, 12 words, natural."""
    texts = _texts(base, connection)
    embedded = vectors.of_queries([text for _, text in texts], "queries").tolist()
    rows = connection.execute(
        "select engine.query_terms(q) from unnest(%s::text[]) with ordinality as t (q, n) order by n",
        ([text for _, text in texts],),
    ).fetchall()
    return [
        Query(kind, text, to_literal(vector), terms)
        for (kind, text), vector, (terms,) in zip(texts, embedded, rows, strict=True)
    ]


def _texts(base: Base, connection: Connection) -> list[tuple[str, str]]:
    random = default_rng(SEED)
    [block] = blocks(base, BLOCK)
    chunks = [text for item in block.items for text in item.chunks]
    frequency = Counter(word for text in chunks for word in set(_WORD.findall(text.lower())))
    asked = connection.execute(
        "select w from unnest(%s::text[]) as w where engine.query_terms(w) <> '{}'", (sorted(frequency),)
    )
    meaningful = {word for (word,) in asked}

    def words(frequencies: range, count: int) -> list[str]:
        among = sorted(word for word in meaningful if frequency[word] in frequencies)
        return [str(word) for word in random.choice(among, count, replace=False)]

    runs = [
        run for text in chunks if len(run := [w for w in _WORD.findall(text.lower()) if w in meaningful][:12]) == 12
    ]
    return [
        *(("rare", " ".join(words(RARE, 2))) for _ in range(EACH)),
        *(("mixed", " ".join([*words(RARE, 1), *words(MEDIUM, 1), *words(COMMON, 2)])) for _ in range(EACH)),
        *(("common", " ".join(words(COMMON, 3))) for _ in range(EACH)),
        *(("12 words", " ".join(runs[place])) for place in random.choice(len(runs), EACH, replace=False)),
        *(("natural", question) for question in _questions(random)),
    ]


def _questions(random: Generator) -> list[str]:
    """Half of LoCoMo, half of Cranfield."""
    found = []
    for collection in (read_locomo(), read_cranfield()):
        places = random.choice(len(collection.questions), EACH // 2, replace=False)
        found += [collection.questions[place].text for place in places]
    return found
