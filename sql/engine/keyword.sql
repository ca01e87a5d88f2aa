-- The keyword leg: BM25 over the terms of chunks (Robertson and Zaragoza 2009, k1 = 1.2), any term may match. What
-- would rank the same without reading every row that holds a common word is found by the rare words, and by common
-- words that stand together, and proved.

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

-- Size of what the caller may search, and how many of its chunks hold each term. Orgs of more than 5,000 chunks have
-- statistics of their scopes and frequent terms; all else is counted here, up to 20,000 rows, over what the caller
-- sees, so that a hidden row's words do not show in a score.
create or replace function engine.weigh_terms(c engine.caller, asked text, terms text[], states text[])
returns engine.query_terms language plpgsql stable
-- one plan, which finds the rows of an org by an index, however large a share of the table they are thought to be
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    q engine.query_terms;
    most constant int := engine.most_counted();
    known_documents bigint;
    known_length bigint;
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
        array_agg(t.term order by t.documents, t.term) filter (where t.documents > 0),
        array_agg(engine.term_query(t.term) order by t.documents, t.term) filter (where t.documents > 0),
        array_agg(t.documents order by t.documents, t.term) filter (where t.documents > 0),
        array_agg(engine.idf(q.size, t.documents) order by t.documents, t.term) filter (where t.documents > 0),
        array_agg(t.term = any(identifiers) order by t.documents, t.term) filter (where t.documents > 0),
        sum(engine.idf(q.size, t.documents))
    into q.terms, q.queries, q.documents, q.idfs, q.identifiers, q.all_idf
    from (
        select u.term, coalesce(
            (
                select sum(s.documents) from almagest.term_statistics as s
                where known_documents is not null and s.org_id = (c).org_id and s.term = u.term
                    and engine.visible(c, s.org_id, s.user_id, s.client_id, s.deal_id, s.agent_ids)
            ),
            (
                select count(*)
                from (
                    select
                    from (
                        select l.* from almagest.lexical as l
                        where almagest.org_terms(l.org_id, l.terms) @@ engine.org_term((c).org_id, u.term)::tsquery
                        offset 0 -- by this index alone
                    ) as l
                    where engine.visible(c, l.org_id, l.user_id, l.client_id, l.deal_id, l.agent_ids)
                        and l.state = any(states)
                    limit most
                ) as held
            )
        )::float8 as documents
        from unnest(terms) as u (term)
        offset 0 -- counted once
    ) as t;
    return q;
end
$$;

-- The lowest sum of idf that a row has to reach to be read, so that about so many rows are: told by its three rarest
-- terms, of which the rarest is one of the first.
--   idfs, documents  of the terms, rarest first; its work grows with the cube of how many there are
--   size             chunks of the partition
--   leads            how many terms may be the rarest of a row
--   rows             about how many rows at the most; more where fewer than 1,000 would be left
--   least_idf        the sum; the next below it is the most that the others can have
--   expected         how many there will be
-- A set of terms lets rows through from its sum on, down to the sum without its most frequent term, where the rest lets
-- them through already. Each further term is taken to stand with the others half as often again as by chance.
create or replace function engine.idf_to_reach(
    idfs float8[], documents float8[], size float8, leads int, rows float8, out least_idf float8, out next_idf float8,
    out expected float8
)
language sql immutable parallel safe as $$
    with terms as (
        select t.place, t.idf, t.documents, 1.5 * t.documents / greatest(size, 1) as share
        from unnest(idfs, documents) with ordinality as t (idf, documents, place)
    ),
    sets as (
        select a.idf as sum_idf, 0::float8 as without_last, a.documents
        from terms as a where a.place <= leads
        union all
        select a.idf + b.idf, a.idf, a.documents * least(1, b.share)
        from terms as a join terms as b on b.place > a.place
        where a.place <= leads
        union all
        select a.idf + b.idf + c.idf, a.idf + b.idf, a.documents * least(1, b.share) * least(1, c.share)
        from terms as a
        join terms as b on b.place > a.place
        join terms as c on c.place > b.place
        where a.place <= leads
    ),
    levels as (
        select l.idf, sum(sum(l.documents)) over (order by l.idf desc) as expected
        from (
            select s.sum_idf as idf, s.documents from sets as s
            union all
            select s.without_last, -s.documents from sets as s where s.without_last > 0
        ) as l
        group by l.idf
    )
    select l.idf - 1e-9, coalesce(l.next_idf, 0), l.expected -- two sums of the same may differ in their last bits
    from (
        select
            v.*, lag(v.expected, 1, 0) over (order by v.idf desc) as before,
            lead(v.idf) over (order by v.idf desc) as next_idf
        from levels as v
    ) as l
    where l.expected <= rows or l.before < 1000
    order by l.idf
    limit 1
$$;

-- Words of the index, rarest first, and their idf -> the text of a tsquery for rows that hold some whose idf adds up to
-- what is needed, of at most so many of them; null where none does.
create or replace function engine.adding_up(words text[], idfs float8[], needed float8, most int)
returns text language plpgsql immutable parallel safe as $$
declare
    n constant int := cardinality(words);
    enough int := 0;        -- words that do by themselves
    parts text[] := '{}';
    rest text;
begin
    while enough < n and idfs[enough + 1] >= needed loop
        enough := enough + 1;
        parts := parts || words[enough];
    end loop;
    if most > 1 then
        for i in enough + 1..n - 1 loop
            rest := engine.adding_up(words[i + 1:], idfs[i + 1:], needed - idfs[i], most - 1);
            exit when rest is null;
            parts := parts || format('%s & (%s)', words[i], rest);
        end loop;
    end if;
    return nullif(array_to_string(parts, ' | '), '');
end
$$;

-- Which rows to read, as a query over almagest.lexical for execute … using c, states, within, queries, conditions.
-- Terms stay parameters, here and in engine.rank_columns: where a query is cut short, its text is in the server's log.
--   rows    about how many the condition may let through
--   again   whether this is the second reading, since the first did not fill the answer: then some rows of the next
--           word alone come too
--   bound   the highest BM25 score that a row beside the condition can have; null where every match is read, and
--           infinity where rows are cut off
-- A row is read where its terms are rare enough together: where the idf of its three rarest, among the 16 rarest of the
-- query, adds up to a threshold. So of common words only rows are read that hold several. The word index walks through
-- the rows of each term that may be the rarest of a row: a tenth of what the caller may search at the most, or 50,000.
create or replace function engine.rows_to_read(
    q engine.query_terms, org uuid, rows float8, again boolean, out query text, out conditions tsquery[],
    out bound float8
)
language plpgsql immutable parallel safe as $$
declare
    idfs constant float8[] := (q).idfs;
    words text[] := array(select engine.org_term(org, term) from unnest((q).terms) as term);
    n constant int := cardinality(words);
    chosen constant int := least(n, 16);
    leads int;              -- terms that may be the rarest of a row
    alone int := 0;         -- terms that do by themselves
    needed record;
    beside text;
    wanted text[] := '{}';
begin
    if rows >= (select sum(d) from unnest((q).documents) as d) then
        wanted := array[array_to_string(words, ' | ')];
        alone := n;
    else
        leads := greatest(1, (
            select count(*)
            from (
                select sum(d) over (order by place) as walked
                from unnest((q).documents[:chosen]) with ordinality as t (d, place)
            ) as w
            where w.walked <= greatest(50000, rows, (q).size / 10)
        ));
        needed := engine.idf_to_reach(idfs[:chosen], (q).documents[:chosen], (q).size, leads, rows);
        alone := (select count(*) from unnest(idfs[:leads]) as idf where idf >= needed.least_idf);
        if alone > 0 then
            wanted := array[array_to_string(words[:alone], ' | ')];
        end if;
        for i in alone + 1..leads loop
            beside := engine.adding_up(words[i + 1:chosen], idfs[i + 1:chosen], needed.least_idf - idfs[i], 2);
            exit when beside is null;
            wanted := wanted || format('%s & (%s)', words[i], beside);
        end loop;
        bound := case
            when needed.expected > 4 * rows then 'infinity'
            else engine.most_beside(idfs[alone + 1:], needed.next_idf, leads - alone, chosen - alone)
        end;
    end if;
    -- queries of their own, so that rows come from the word index alone
    query := format(
        '(select l.* from almagest.lexical as l where %s limit %s)%s',
        (
            select string_agg(format('almagest.org_terms(l.org_id, l.terms) @@ ($5)[%s]', number), ' or ')
            from generate_series(1, cardinality(wanted)) as number
        ),
        case when bound = 'infinity' then (2 * rows)::bigint::text else 'all' end,
        case when again and alone < n then format(
            ' union all (select l.* from almagest.lexical as l where almagest.org_terms(l.org_id, l.terms) @@ ($5)[%s]'
            ' limit %s)', cardinality(wanted) + 1, rows::bigint / 10
        ) end
    );
    conditions := (wanted || words[alone + 1:alone + 1])::tsquery[];
    bound := case when alone < n or bound = 'infinity' then bound end;
end
$$;

-- The highest BM25 score that a row can have beside those that engine.rows_to_read asks for.
--   idfs    of the terms that it may hold, rarest first
--   three   the most that its three rarest terms add up to
--   leads   how many of the terms are looked up as the rarest of a row; chosen: and how many as the others
-- Each term adds less than 2.2 of its idf (k1 = 1.2).
create or replace function engine.most_beside(idfs float8[], three float8, leads int, chosen int)
returns float8 language sql immutable parallel safe as $$
    select 2.2 * least(
        (select sum(idf) from unnest(idfs) as idf),
        greatest(
            -- the third adds a third of the three at the most, and after it only more frequent ones come
            three + coalesce((
                select sum(t.idf) from unnest(idfs) with ordinality as t (idf, place)
                where t.place > (
                    select min(u.place) from unnest(idfs) with ordinality as u (idf, place)
                    where u.place >= 3 and u.idf <= three / 3 + 1e-9
                )
            ), 0),
            (select sum(idf) from unnest(idfs[leads + 1:]) as idf),
            (select sum(idf) from unnest(idfs[:2] || idfs[chosen + 1:]) as idf where cardinality(idfs) > chosen)
        )
    )
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
