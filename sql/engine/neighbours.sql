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

-- The chunks around given ones, these included: distance 0 is given, 1 or 2 are neighbours (candidates themselves), 3 or
-- 4 are the neighbours' neighbours (their words count for those at 1 or 2). Rows of another state are no neighbours.
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
-- stands there.
create or replace function engine.windowed_scores(
    q engine.query_terms, chunk_ids bigint[], distances int[], knobs jsonb
)
returns table (chunk_id bigint, score float8, matched float8) language plpgsql stable as $$
declare
    terms int := coalesce(cardinality((q).terms), 0);
    windowed text;
    held text;
begin
    if terms = 0 then
        return query select n.id, 0::float8, 0::float8 from unnest(chunk_ids, distances) as n (id, d) where n.d <= 2;
        return;
    end if;
    select string_agg(format(
        'f%1$s + previous * coalesce(lag(f%1$s) over w, 0) + next * coalesce(lead(f%1$s) over w, 0)'
        ' + two_away * (coalesce(lag(f%1$s, 2) over w, 0) + coalesce(lead(f%1$s, 2) over w, 0)) as w%1$s', number
    ), ', ')
    into windowed from generate_series(1, terms) as number;
    select string_agg(format('case when w%s > 0 then %s::float8 else 0 end', number, idf), ' + ') into held
    from unnest((q).idfs) with ordinality as i (idf, number);
    return query execute format(
        'select chunk_id, s / (s + case when message then %s::float8 else %s::float8 end), matched / %s::float8'
        ' from (select chunk_id, message, distance, %s as s, %s as matched from ('
        ' select chunk_id, message, distance, k, %s from ('
        ' select l.chunk_id, l.sequence, l.state, l.place, m.message, n.distance, %s as k, %s,'
        ' case when m.message then %s::float8 else %s::float8 end as previous,'
        ' case when m.message then %s::float8 else %s::float8 end as next,'
        ' case when m.message then %s::float8 else 0 end as two_away'
        ' from unnest($1, $2) as n (id, distance) join almagest.lexical as l on l.chunk_id = n.id'
        ' cross join lateral (select l.sequence <> l.item_id as message) as m offset 0'
        ' ) as r window w as (partition by sequence, state order by place, chunk_id)'
        ' ) as windows offset 0) as scored where distance <= 2',
        knobs ->> 'message_keyword_scale', knobs ->> 'keyword_scale', (select sum(idf) from unnest((q).idfs) as idf),
        engine.score_expression((q).idfs, 'w'), held, windowed, engine.length_expression(q, knobs),
        engine.frequency_columns((q).queries),
        knobs ->> 'neighbour_previous', knobs ->> 'neighbour_slice', knobs ->> 'neighbour_next',
        knobs ->> 'neighbour_slice', knobs ->> 'neighbour_two_away'
    ) using chunk_ids, distances;
end
$$;
