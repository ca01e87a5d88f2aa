-- The keyword leg: BM25 over the terms of chunks (Robertson and Zaragoza 2009, k1 = 1.2), any term may match. It does
-- not read every row that holds a common word, see pruning.sql, and says whether that is proved to rank the same.

-- Inverse document frequency, always above 0.
create or replace function engine.idf(size float8, documents float8)
returns float8 language sql immutable parallel safe as $$
    select ln(1::float8 + greatest(size - documents + 0.5::float8, 0.5::float8) / (documents + 0.5::float8))
$$;

-- A term as the word index has it, as text of a tsquery.
create or replace function engine.org_term(org uuid, term text)
returns text language sql immutable parallel safe as $$
    select '''' || replace(replace(left(org::text, 8) || ':' || term, '\', '\\'), '''', '''''') || ''''
$$;

-- Up to how many rows a search counts itself.
create or replace function engine.most_counted()
returns int language sql immutable parallel safe as $$ select 20000 $$;

-- How many chunks the caller may search, and their average length.
create or replace function engine.count_chunks(
    c engine.caller, states text[], out documents bigint, out average_length float8
)
language plpgsql stable as $$
begin
    select count(*), avg(counted.length) into documents, average_length
    from (
        select l.length from almagest.lexical as l
        where engine.visible(c, l.org_id, l.user_id, l.client_id, l.deal_id, l.agent_ids) and l.state = any(states)
        limit engine.most_counted()
    ) as counted;
end
$$;

-- How many of them hold a term.
create or replace function engine.count_holders(c engine.caller, term text, states text[])
returns bigint language plpgsql stable as $$
begin
    return (
        select count(*)
        from (
            select
            from (
                select l.* from almagest.lexical as l
                where almagest.org_terms(l.org_id, l.terms) @@ engine.org_term((c).org_id, term)::tsquery
                offset 0 -- by this index alone
            ) as l
            where engine.visible(c, l.org_id, l.user_id, l.client_id, l.deal_id, l.agent_ids) and l.state = any(states)
            limit engine.most_counted()
        ) as holders
    );
end
$$;

-- Size of what the caller may search, and how many of its chunks hold each term. Orgs of more than 5,000 chunks have
-- statistics of their scopes and of what is frequent in each; all else is counted here, up to 20,000 rows. Both are of
-- what the caller sees, and so is which of them a term has, so that a hidden row's words show in no score. A term has
-- the statistics where they say that it is frequent in all that the caller sees: then the scopes that keep no number of
-- it hold few, which are left out, since to count them would be to pass over all the others.
--   states       of the rows that words are weighed by
--   read_states  of those that will be read, where others are too: size and documents tell of these, no weight does
create or replace function engine.weigh_terms(
    c engine.caller, asked text, terms text[], states text[], read_states text[] default null
)
returns engine.query_terms language plpgsql stable
-- one plan, which finds the rows of an org by an index, however large a share of the table they are thought to be
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    q engine.query_terms;
    known_documents bigint;
    known_length bigint;
    all_weighed record;
    all_read record;
    -- a word with a hyphen is a word, and a number of two digits says nothing
    identifiers text[] := array(
        select i from engine.identifiers(engine.fold(left(asked, 1000))) as i
        where i !~ '^([[:alpha:]]+(-[[:alpha:]]+)+|\d\d?)$'
    );
begin
    select sum(p.documents), sum(p.total_length) into known_documents, known_length
    from almagest.partition_statistics as p
    where engine.visible(c, p.org_id, p.user_id, p.client_id, p.deal_id, p.agent_ids);

    if known_documents is null then
        q.counted := 'live';
        all_weighed := engine.count_chunks(c, states);
        all_read := case when read_states is null then all_weighed else engine.count_chunks(c, read_states) end;
    else
        q.counted := 'statistics';
        select known_documents as documents, known_length::float8 / known_documents as average_length into all_weighed;
        all_read := all_weighed;
    end if;
    q.size := all_read.documents;
    q.average_length := greatest(coalesce(all_weighed.average_length, all_read.average_length), 1);

    select
        array_agg(t.term order by t.weighed, t.term) filter (where t.documents > 0),
        array_agg(engine.term_query(t.term) order by t.weighed, t.term) filter (where t.documents > 0),
        array_agg(t.documents order by t.weighed, t.term) filter (where t.documents > 0),
        array_agg(engine.idf(all_weighed.documents, t.weighed) order by t.weighed, t.term) filter (where t.documents > 0),
        array_agg(t.term = any(identifiers) order by t.weighed, t.term) filter (where t.documents > 0),
        sum(engine.idf(all_weighed.documents, t.weighed))
    into q.terms, q.queries, q.documents, q.idfs, q.identifiers, q.all_idf
    from (
        select
            -- what only rows of other states hold weighs as if one held it
            u.term, reading.documents, greatest(weighing.documents, least(reading.documents, 1)) as weighed
        from unnest(terms) as u (term)
        left join lateral (
            select sum(s.documents) as documents from almagest.term_statistics as s
            where known_documents is not null and s.org_id = (c).org_id and s.term = u.term
                and engine.visible(c, s.org_id, s.user_id, s.client_id, s.deal_id, s.agent_ids)
            having sum(s.documents) >= engine.frequent(known_documents, 300)
        ) as known on true
        cross join lateral (
            select coalesce(known.documents, engine.count_holders(c, u.term, states))::float8 as documents
            offset 0 -- counted once
        ) as weighing
        cross join lateral (
            select case
                when known.documents is null and read_states is not null
                    then engine.count_holders(c, u.term, read_states)
                else weighing.documents
            end as documents
            offset 0
        ) as reading
        offset 0
    ) as t;
    return q;
end
$$;

-- The rank of each term of the query, the queries being $4, as SQL columns r1, r2, … of a row; 0 where it has none.
create or replace function engine.rank_columns(queries tsquery[])
returns text language sql immutable parallel safe as $$
    select string_agg(
        format('ts_rank(''{0,0,1,1}'', l.terms, ($4)[%s]) as r%s', number, number), ', ' order by number
    )
    from generate_series(1, cardinality(queries)) as number
$$;

-- The BM25 sum over columns r1, r2, … and a column k, the length's part of the formula. ts_rank sums 1/i^2 over the
-- places of a term, which tends to pi^2/6 = 1.64493406685; the inverse is the term's frequency, exact for 0 to 255
-- occurrences (PostgreSQL 18.6).
create or replace function engine.score_expression(idfs float8[])
returns text language sql immutable parallel safe as $$
    select string_agg(format(
        'case when r%s > 0 then %s::float8'
        ' / (1::float8 + k / round(1::float8 / (1.64493406685::float8 * (1::float8 - r%s)) - 0.5::float8)) else 0 end',
        number, (idf * 2.2)::text, number
    ), ' + ' order by number)
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

-- The best of the rows that a query reads: chunks by BM25, one a text, the caller's own before a shared one, and one an
-- item unless by_chunk: so neither what stands in many nor a long document fills the pool.
--   reading, conditions  as engine.rows_to_read makes them
create or replace function engine.best_of_rows(
    c engine.caller, q engine.query_terms, states text[], within bigint[], by_chunk boolean, knobs jsonb, pool int,
    reading text, conditions tsquery[], out chunk_ids bigint[], out scores float8[]
)
language plpgsql stable as $$
declare
    one_each text := case when by_chunk then 'chunk_id' else 'item_id' end;
    depth int := case when by_chunk then pool else 4 * pool end; -- how many chunks are looked at to find so many items
    looked_at int;
begin
    loop
        execute format(
            'select array_agg(chunk_id order by score desc, chunk_id desc), array_agg(score order by score desc, chunk_id desc),'
            ' max(looked_at) from (select * from ('
            ' select distinct on (%s) * from ('
            ' select distinct on (text_hash) * from ('
            ' select d.*, count(*) over () as looked_at from (select r.*, %s as score from ('
            ' select l.chunk_id, l.item_id, l.user_id, coalesce(l.text_hash, l.chunk_id) as text_hash, %s as k, %s'
            ' from (%s) as l where engine.visible($1, l.org_id, l.user_id, l.client_id, l.deal_id, l.agent_ids)'
            ' and l.state = any($2) and %s offset 0) as r'
            ' order by score desc, chunk_id desc limit %s) as d) as deep'
            ' where score > 0 order by text_hash, score desc, user_id nulls last, chunk_id desc) as first_of_text'
            ' order by %s, score desc, chunk_id desc) as first_of_item'
            ' order by score desc, chunk_id desc limit %s) as best',
            one_each, engine.score_expression((q).idfs), engine.length_expression(q, knobs),
            engine.rank_columns((q).queries), reading,
            case when within is not null then 'l.chunk_id = any($3)' else 'true' end, depth, one_each, pool
        ) into chunk_ids, scores, looked_at using c, states, within, (q).queries, conditions;
        exit when cardinality(chunk_ids) = pool or looked_at < depth or looked_at is null;
        depth := depth * 16;
    end loop;
end
$$;

-- The keyword leg: the best chunks, and whether the first of them, so many as the answer has, are proved to be the
-- best: a row that was not read scores less than the bound. Where they do not fill the answer, ten times as many rows
-- are read.
--   within  only these chunks, or null for all; up to 5,000 are read each, and among more of them the fewer of the rows
--           pass, the more are read
--   q       as engine.weigh_terms makes it
create or replace function engine.keyword_leg(
    c engine.caller, q engine.query_terms, states text[], within bigint[], by_chunk boolean, knobs jsonb, pool int,
    picks int, out chunk_ids bigint[], out scores float8[], out exact boolean
)
language plpgsql stable as $$
declare
    rows float8 := case
        when (knobs ->> 'exhaustive')::boolean then 'infinity'
        else (3000 + (q).size / 400) * least(5, greatest(1, (q).size / nullif(cardinality(within), 0)))
    end;
    again boolean;
    source record;
begin
    exact := true;
    if coalesce(cardinality((q).terms), 0) = 0 then
        return;
    end if;
    foreach again in array '{false,true}'::boolean[] loop
        if cardinality(within) <= 5000 then
            select
                'select l.* from almagest.lexical as l where l.chunk_id = any($3)' as query, null::tsquery[] as conditions,
                null::float8 as bound
            into source;
        else
            source := engine.rows_to_read(q, (c).org_id, case when again then 10 * rows else rows end, again);
        end if;
        select b.chunk_ids, b.scores into chunk_ids, scores
        from engine.best_of_rows(c, q, states, within, by_chunk, knobs, pool, source.query, source.conditions) as b;
        exact := source.bound is null or coalesce(scores[picks] >= source.bound, false);
        exit when exact or scores[picks] is not null;
    end loop;
end
$$;
