-- The keyword leg: BM25 over the terms of chunks (Robertson and Zaragoza 2009, k1 = 1.2), any term may match. What
-- would rank the same without reading every row that holds a common word is found by the rare words alone, and proved.

-- The term frequency behind ts_rank's score of a single term: ts_rank sums 1/i^2 over the places, which tends to
-- pi^2/6 = 1.64493406685, and this inverts it. Exact for 0 to 255 occurrences (PostgreSQL 18.6).
create or replace function engine.term_frequency(rank real)
returns float8 language sql immutable parallel safe as $$
    select round(1::float8 / (1.64493406685::float8 * greatest(1::float8 - rank, 1e-9::float8)) - 0.5::float8)
$$;

-- Inverse document frequency, always above 0.
create or replace function engine.idf(size float8, documents float8)
returns float8 language sql immutable parallel safe as $$
    select ln(1::float8 + greatest(size - documents + 0.5::float8, 0.5::float8) / (documents + 0.5::float8))
$$;

-- Which rows of almagest.lexical (as l) take part, as SQL for execute … using c, states.
create or replace function engine.lexical_scope()
returns text language sql immutable parallel safe as $$
    select 'engine.visible($1, l.org_id, l.user_id, l.client_id, l.deal_id, l.agent_ids) and l.state = any($2)'
$$;

-- How often each term of the query stands in a row, as SQL columns f1, f2, … The one place where terms become SQL text:
-- always as literals.
create or replace function engine.frequency_columns(queries tsquery[])
returns text language sql immutable parallel safe as $$
    select string_agg(format(
        'round(1::float8 / (1.64493406685::float8 * (1::float8 - ts_rank(''{0,0,0,1}'', l.terms, %L::tsquery))) - 0.5::float8)'
        ' as f%s', query, number
    ), ', ' order by number)
    from unnest(queries) with ordinality as t (query, number)
$$;

-- The BM25 sum over columns named by prefix and number (f1, f2, …) and a column k, the length's part of the formula.
create or replace function engine.score_expression(idfs float8[], prefix text)
returns text language sql immutable parallel safe as $$
    select string_agg(
        format('%s::float8 * %s%s / (%s%s + k)', (idf * 2.2)::text, prefix, number, prefix, number), ' + ' order by number
    )
    from unnest(idfs) with ordinality as t (idf, number)
$$;

-- The length's part of BM25: messages are short by nature, and hardly punished for being longer than others.
create or replace function engine.length_expression(q engine.query_terms, knobs jsonb)
returns text language sql immutable parallel safe as $$
    select format(
        '1.2::float8 * case when l.sequence <> l.item_id'
        ' then %s::float8 + %s::float8 * l.length else %s::float8 + %s::float8 * l.length end',
        1 - m, m / (q).average_length, 1 - d, d / (q).average_length
    )
    from (
        select (knobs ->> 'message_length_normalisation')::float8 as m, (knobs ->> 'length_normalisation')::float8 as d
    ) as b
$$;

-- Size of what the caller may search, and how many of its chunks hold each term. Orgs of more than 20,000 chunks have
-- statistics of their scopes and frequent terms; all else is counted here, up to that many rows, over what the
-- caller sees, so that a hidden row's words do not show in a score.
create or replace function engine.weigh_terms(c engine.caller, terms text[], states text[])
returns engine.query_terms language plpgsql stable as $$
declare
    q engine.query_terms;
    most constant int := 20001;
    known_documents bigint;
    known_length bigint;
begin
    select sum(p.documents), sum(p.total_length) into known_documents, known_length
    from almagest.partition_statistics as p
    where engine.visible(c, p.org_id, p.user_id, p.client_id, p.deal_id, p.agent_ids);

    if known_documents is null then
        q.counted := 'live';
        select count(*), greatest(avg(counted.length), 1) into q.size, q.average_length
        from (
            select l.length from almagest.lexical as l
            where engine.visible(c, l.org_id, l.user_id, l.client_id, l.deal_id, l.agent_ids) and l.state = any(states)
            limit most
        ) as counted;
    else
        q.counted := 'statistics';
        q.size := known_documents;
        q.average_length := greatest(known_length::float8 / known_documents, 1);
    end if;

    select
        array_agg(t.term order by t.documents, t.term),
        array_agg(t.query order by t.documents, t.term),
        array_agg(t.documents order by t.documents, t.term),
        array_agg(engine.idf(q.size, t.documents) order by t.documents, t.term)
    into q.terms, q.queries, q.documents, q.idfs
    from (
        select asked.term, asked.query, coalesce(known.documents, counted.documents)::float8 as documents
        from (select u.term, engine.term_query(u.term) as query from unnest(terms) as u (term)) as asked
        left join lateral (
            select sum(s.documents) as documents from almagest.term_statistics as s
            where known_documents is not null and s.term = asked.term
                and engine.visible(c, s.org_id, s.user_id, s.client_id, s.deal_id, s.agent_ids)
        ) as known on true
        left join lateral (
            select count(*) as documents
            from (
                select from almagest.lexical as l
                where ts_filter(l.terms, '{a}') @@ asked.query
                    and engine.visible(c, l.org_id, l.user_id, l.client_id, l.deal_id, l.agent_ids)
                    and l.state = any(states)
                limit most
            ) as held
        ) as counted on known.documents is null
    ) as t
    where t.documents > 0;
    return q;
end
$$;

-- items: only these, or null for all. Returns the best chunks by BM25, one an item so that a long document does not
-- fill the pool, and whether they are proved to be the best.
--   budget  how many rows the candidate terms may touch together; null: no pruning
-- A chunk that was not read holds none of the candidate terms, so it scores less than the sum of idf * 2.2 over the
-- others: where the last of the best scores at least that, nothing was missed.
create or replace function engine.best_by_keywords(
    c engine.caller, q engine.query_terms, states text[], items uuid[], knobs jsonb, pool int, budget float8,
    out chunk_ids bigint[], out scores float8[], out exact boolean
)
language plpgsql stable as $$
declare
    candidates int := cardinality((q).terms);
    depth int := 4 * pool;  -- how many chunks are looked at to find as many items as the pool holds
    looked_at int;
    bound float8;
begin
    if budget is not null then
        select greatest(count(*) filter (where t.so_far <= budget), 1) into candidates
        from (select sum(d) over (order by number) as so_far from unnest((q).documents) with ordinality as d (d, number)) as t;
    end if;
    loop
        execute format(
            'select array_agg(chunk_id order by score desc, chunk_id desc), array_agg(score order by score desc, chunk_id desc),'
            ' max(looked_at) from (select * from ('
            ' select distinct on (item_id) chunk_id, score, looked_at from ('
            ' select d.*, count(*) over () as looked_at from (select chunk_id, item_id, %s as score from ('
            ' select l.chunk_id, l.item_id, %s as k, %s from almagest.lexical as l where %s and %s and %s offset 0) as r'
            ' order by score desc, chunk_id desc limit %s) as d) as deep'
            ' where score > 0 order by item_id, score desc, chunk_id desc) as first_of_item'
            ' order by score desc, chunk_id desc limit %s) as best',
            engine.score_expression((q).idfs, 'f'), engine.length_expression(q, knobs),
            engine.frequency_columns((q).queries), engine.lexical_scope(),
            case
                when items is not null or (q).size <= 1000 then 'true'
                else format(
                    'ts_filter(l.terms, ''{a}'') @@ %L::tsquery', array_to_string((q).queries[:candidates], ' | ')
                )
            end,
            case when items is not null then 'l.item_id = any($3)' else 'true' end, depth, pool
        ) into chunk_ids, scores, looked_at using c, states, items;
        exit when cardinality(chunk_ids) = pool or looked_at < depth or looked_at is null;
        depth := depth * 16;
    end loop;

    select coalesce(sum(idf * 2.2), 0) into bound
    from unnest((q).idfs) with ordinality as i (idf, number) where number > candidates;
    exact := items is not null or (q).size <= 1000 or candidates = cardinality((q).terms)
        or coalesce(cardinality(chunk_ids) = pool and scores[pool] >= bound, false);
end
$$;

-- The keyword leg: as many rare terms as the budget allows; where the result is not proved, once more with eight times
-- the budget. items as above; q as engine.weigh_terms makes it.
create or replace function engine.keyword_leg(
    c engine.caller, q engine.query_terms, states text[], items uuid[], knobs jsonb, pool int,
    out chunk_ids bigint[], out scores float8[], out exact boolean
)
language plpgsql stable as $$
declare
    budget float8 := case
        when (knobs ->> 'exhaustive')::boolean then null
        when cardinality((q).terms) <= 5 then 1000
        when cardinality((q).terms) <= 11 then 3000
        else 10000
    end;
begin
    exact := true;
    if coalesce(cardinality((q).terms), 0) = 0 then
        return;
    end if;
    select b.* into chunk_ids, scores, exact
    from engine.best_by_keywords(c, q, states, items, knobs, pool, budget) as b;
    if not exact then
        select b.* into chunk_ids, scores, exact
        from engine.best_by_keywords(c, q, states, items, knobs, pool, budget * 8) as b;
    end if;
end
$$;
