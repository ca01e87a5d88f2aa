-- The keyword leg: BM25 over the terms of chunks (Robertson and Zaragoza 2009, k1 = 1.2), any term may match.

-- The term frequency behind ts_rank's score of a single term: ts_rank sums 1/i^2 over the places, which tends to
-- pi^2/6 = 1.64493406685, and this inverts it. Exact for 0 to 255 occurrences (PostgreSQL 18.6).
create or replace function engine.term_frequency(rank real)
returns float8 language sql immutable parallel safe as $$
    select round(1::float8 / (1.64493406685::float8 * greatest(1::float8 - rank, 1e-9::float8)) - 0.5::float8)
$$;

-- terms    of engine.query_terms
-- states   which item states take part
-- filters  see engine.matching_items; '{}' for none
-- b        length normalisation, 0..1
-- Returns every chunk that holds a term: score >= 0, higher is better, and which share of the query's idf it holds,
-- 0..1. Document frequencies are counted over what the caller may see, so that a hidden row's words do not show in a
-- score.
-- Costs a bitmap scan a term.
create or replace function engine.keyword_leg(
    c engine.caller, terms text[], states text[], filters jsonb, b float8
)
returns table (chunk_id bigint, item_id uuid, score float8, matched float8)
language sql stable as $$
    with asked as materialized (
        select t.number, engine.term_query(t.term) as query from unnest(terms) with ordinality as t (term, number)
    ),
    partition as (
        select count(*)::float8 as size, greatest(avg(l.length), 1)::float8 as average_length
        from almagest.lexical as l
        where engine.visible(c, l.org_id, l.user_id, l.client_id, l.deal_id, l.agent_ids) and l.state = any(states)
    ),
    -- narrow rows: the terms themselves are not carried on
    matched as materialized (
        select
            l.chunk_id, l.item_id, l.length, a.number,
            engine.term_frequency(ts_rank('{0,0,0,1}', l.terms, a.query)) as frequency
        from asked as a
        join almagest.lexical as l on ts_filter(l.terms, '{a}') @@ a.query
        where engine.visible(c, l.org_id, l.user_id, l.client_id, l.deal_id, l.agent_ids) and l.state = any(states)
    ),
    weighed as (
        select d.number, ln(1::float8 + (p.size - d.documents + 0.5::float8) / (d.documents + 0.5::float8)) as idf
        from (select m.number, count(*)::float8 as documents from matched as m group by m.number) as d, partition as p
    )
    select m.chunk_id, m.item_id, sum(
        w.idf * m.frequency * 2.2::float8
        / (m.frequency + 1.2::float8 * (1::float8 - b + b * m.length / p.average_length))
    ) as score, sum(w.idf) / (select sum(t.idf) from weighed as t)
    from matched as m
    join weighed as w on w.number = m.number
    cross join partition as p
    where filters = '{}' or m.item_id in (select engine.matching_items(c, filters))
    group by m.chunk_id, m.item_id
$$;
