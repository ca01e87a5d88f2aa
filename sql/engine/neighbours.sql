-- Neighbours: a message means little without the ones around it, and a slice of a document little without its own. They
-- are looked up as they stand when a search is made, so that an append, an edit, an archive, a restore or an erasure in
-- the middle shows in the next search, and writing costs nothing.

-- The sequence that an item's chunks belong to: its conversation, within the scope of who may see it, or itself.
create or replace function engine.sequence_of(i almagest.items)
returns uuid language sql stable parallel safe as $$
    select case
        when (i).conversation_id is null then (i).id
        else md5(jsonb_build_array(
            (i).org_id, (i).user_id, (i).client_id, (i).deal_id, (i).agent_ids, (i).conversation_id
        )::text)::uuid
    end
$$;

-- The chunks around given ones, these included: distance 0 is given, 1 or 2 are neighbours (candidates themselves), 3
-- or 4 are the neighbours' neighbours (their words count for those at 1 or 2). Rows of another state are no neighbours.
create or replace function engine.around(chunk_ids bigint[])
returns table (chunk_id bigint, distance int) language sql stable as $$
    select n.chunk_id, min(n.distance)::int
    from almagest.lexical as s
    cross join lateral (
        (
            select l.chunk_id, row_number() over (order by l.place desc, l.chunk_id desc) - 1 as distance
            from almagest.lexical as l
            where l.sequence = s.sequence and l.state = s.state and (l.place, l.chunk_id) <= (s.place, s.chunk_id)
            order by l.place desc, l.chunk_id desc
            limit 5
        )
        union all
        (
            select l.chunk_id, row_number() over (order by l.place, l.chunk_id) as distance
            from almagest.lexical as l
            where l.sequence = s.sequence and l.state = s.state and (l.place, l.chunk_id) > (s.place, s.chunk_id)
            order by l.place, l.chunk_id
            limit 4
        )
    ) as n
    where s.chunk_id = any(chunk_ids)
    group by n.chunk_id
$$;

-- The keyword score of chunks with the words of their neighbours: each neighbour's term frequencies count by its share,
-- which is large between messages and small between the slices of a document.
--   chunk_ids, distances  of engine.around
-- Returns for those up to a distance of 2: s / (s + scale) of the BM25 sum s, and the share of the query's idf that
-- stands there. Nothing here depends on the values, so one plan serves all calls.
create or replace function engine.windowed_scores(
    q engine.query_terms, chunk_ids bigint[], distances int[], knobs jsonb
)
returns table (chunk_id bigint, score float8, matched float8)
language plpgsql stable rows 300 set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    queries tsquery[] := coalesce((q).queries, '{}');
    idfs float8[] := (q).idfs;
    all_idf float8 := (select sum(idf) from unnest((q).idfs) as idf);
    average_length float8 := (q).average_length;
    -- of messages, of slices
    b float8[] := array[(knobs ->> 'message_length_normalisation')::float8, (knobs ->> 'length_normalisation')::float8];
    scale float8[] := array[(knobs ->> 'message_keyword_scale')::float8, (knobs ->> 'keyword_scale')::float8];
    previous float8[] := array[(knobs ->> 'neighbour_previous')::float8, (knobs ->> 'neighbour_slice')::float8];
    next float8[] := array[(knobs ->> 'neighbour_next')::float8, (knobs ->> 'neighbour_slice')::float8];
    two_away float8[] := array[(knobs ->> 'neighbour_two_away')::float8, 0];
begin
    return query
    with counted as materialized (
        select
            l.chunk_id, l.sequence, l.state, l.place, n.distance, l.length,
            case when l.sequence <> l.item_id then 1 else 2 end as sort,
            array(
                select engine.term_frequency(ts_rank('{0,0,0,1}', l.terms, t.query))
                from unnest(queries) with ordinality as t (query, number)
                order by t.number
            ) as own
        from unnest(chunk_ids, distances) as n (id, distance)
        join almagest.lexical as l on l.chunk_id = n.id
    ),
    windows as (
        select
            c.chunk_id, c.distance, c.sort, c.own, 1.2 * (1 - b[c.sort] + b[c.sort] * c.length / average_length) as k,
            lag(c.own) over w as before, lead(c.own) over w as after,
            lag(c.own, 2) over w as two_before, lead(c.own, 2) over w as two_after
        from counted as c
        window w as (partition by c.sequence, c.state order by c.place, c.chunk_id)
    )
    select w.chunk_id, coalesce(s.score / (s.score + scale[w.sort]), 0), coalesce(s.held / all_idf, 0)
    from windows as w
    cross join lateral (
        select
            sum(f.idf * 2.2 * f.frequency / (f.frequency + w.k)) as score,
            sum(case when f.frequency > 0 then f.idf end) as held
        from (
            select t.idf, t.own + previous[w.sort] * coalesce(t.before, 0) + next[w.sort] * coalesce(t.after, 0)
                + two_away[w.sort] * (coalesce(t.two_before, 0) + coalesce(t.two_after, 0)) as frequency
            from unnest(idfs, w.own, w.before, w.after, w.two_before, w.two_after)
                as t (idf, own, before, after, two_before, two_after)
        ) as f
    ) as s
    where w.distance <= 2;
end
$$;
