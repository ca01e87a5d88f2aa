"""What a search is compared with, on the same rows: the two index scans alone, and the usual recipe."""

from dataclasses import dataclass
from typing import Any

from tests.bench.cluster import Connection
from tests.bench.queries import Query

DEPTH, PICKS = 50, 10

_SETTINGS = (
    "select set_config('hnsw.ef_search', '60', false), set_config('hnsw.iterative_scan', 'relaxed_order', false),"
    " set_config('work_mem', '64MB', false)"
)

_WORDS = "select count(*) from almagest.lexical as l where {indexed} @@ %(indexed_words)s::tsquery"

_NEAREST = """
select e.chunk_id from almagest.embeddings as e where e.model_id = {model}
order by e.vector operator({schema}.<=>) %(vector)s::{schema}.halfvec limit {depth}
"""

# Any term may match, ts_rank_cd, nearest vectors, reciprocal rank fusion: one statement.
_RECIPE = """
with by_words as (
    select l.chunk_id, row_number() over (order by ts_rank_cd(l.terms, %(words)s::tsquery) desc) as place
    from almagest.lexical as l
    where {indexed} @@ %(indexed_words)s::tsquery and l.org_id = %(org)s and l.state = 'active'
    order by place limit {depth}
),
by_vector as (
    select n.chunk_id, row_number() over (order by n.distance) as place
    from (
        select e.chunk_id, e.vector operator({schema}.<=>) %(vector)s::{schema}.halfvec as distance
        from almagest.embeddings as e
        where e.model_id = {model} and e.org_id = %(org)s and e.state = 'active'
        order by distance limit {depth}
    ) as n
)
select k.id, k.text, f.score
from (
    select chunk_id, coalesce(1.0 / (60 + w.place), 0) + coalesce(1.0 / (60 + v.place), 0) as score
    from by_words as w full join by_vector as v using (chunk_id)
    order by score desc limit {picks}
) as f
join almagest.chunks as k on k.id = f.chunk_id
order by f.score desc
"""


@dataclass(frozen=True)
class Baselines:
    """Statements over one connection, fitted to the indexes that are there."""

    connection: Connection
    org: str
    names: dict[str, Any]

    @classmethod
    def over(cls, connection: Connection, model: str, org: str) -> "Baselines":
        """Look up the extension's schema, the model's number and what the index of terms is on."""
        connection.execute(_SETTINGS.encode())
        row = connection.execute(
            """
            select
                (select n.nspname from pg_extension as x join pg_namespace as n on n.oid = x.extnamespace
                    where x.extname = 'vector'),
                engine.model_id(%s),
                (select pg_get_indexdef(i.indexrelid, i.indnatts, true) from pg_index as i
                    where i.indrelid = 'almagest.lexical'::regclass and pg_get_indexdef(i.indexrelid) ~ 'USING gin')
            """,
            (model,),
        ).fetchone()
        assert row is not None
        names = {"schema": row[0], "model": row[1], "indexed": row[2], "depth": DEPTH, "picks": PICKS}
        return cls(connection, org, names)

    def words(self, query: Query) -> Any:
        """The bare bitmap scan: how many chunks hold any of the terms."""
        return self._run(_WORDS, query) if query.terms else None

    def nearest(self, query: Query) -> Any:
        """The bare scan of the vector index: the 50 nearest."""
        return self._run(_NEAREST, query)

    def recipe(self, query: Query) -> Any:
        """The ten best of the usual recipe."""
        return self._run(_RECIPE, query)

    def _run(self, statement: str, query: Query) -> Any:
        parameters = {
            "words": _any_of(query.terms),
            "indexed_words": _any_of([f"{self.org[:8]}:{term}" for term in query.terms]),  # see almagest.org_terms
            "vector": query.vector,
            "org": self.org,
        }
        return self.connection.execute(statement.format(**self.names).encode(), parameters).fetchall()


def _any_of(terms: list[str]) -> str:
    return " | ".join("'" + term.replace("\\", "\\\\").replace("'", "''") + "'" for term in terms)
