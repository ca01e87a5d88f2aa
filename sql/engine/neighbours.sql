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

-- Knobs by which each chunk is scored by its own words alone.
create or replace function engine.without_neighbours(knobs jsonb)
returns jsonb language sql immutable parallel safe as $$
    select knobs || '{"neighbour_previous": 0, "neighbour_next": 0, "neighbour_two_away": 0, "neighbour_slice": 0}'
$$;

-- The keyword score of chunks and of those around them, each with the words of its neighbours: their term frequencies
-- count by a share, which is large between messages and small between the slices of a document.
--   asked  how many terms the query has, held or not
--   seeds  chunks that a leg found; up to two before and behind each are scored as well, and two more lend their words
-- Returns of each chunk
--   score        s / (s + scale) of the BM25 sum s, 0..1
--   matched      the share of the query's terms that stand in itself, 0..1, each counting the same: it decides the
--                class, which shall not change because a conversation goes on, or a word becomes rarer or more frequent
--   identifiers  the share of it that are identifiers of the chunk's own
--   attributes   how many of the query's terms stand in its title, headings or tags
-- and what is known of its text (see almagest.lexical).
-- Rows of another state are no neighbours. Of the past, nothing tells what lay beside what, so its searches ask with
-- engine.without_neighbours. Nothing here depends on the values, so one plan serves all calls.
create or replace function engine.word_scores(q engine.query_terms, asked int, seeds bigint[], knobs jsonb)
returns table (
    chunk_id bigint, item_id uuid, sequence uuid, score float8, matched float8, identifiers float8, attributes bigint,
    says_when boolean, only_asks boolean, text_hash bigint
)
language plpgsql stable rows 200 set plan_cache_mode = force_generic_plan set join_collapse_limit = 1 as $$
#variable_conflict use_column
declare
    queries tsquery[] := coalesce((q).queries, '{}');
    idfs float8[] := (q).idfs;
    identifier_idfs float8[] := array(
        select case when t.is_identifier then t.idf else 0 end from unnest((q).idfs, (q).identifiers) as t (idf, is_identifier)
    );
    all_idf float8 := (q).all_idf;
    average_length float8 := (q).average_length;
    in_attributes tsquery := (select string_agg(query::text || ':B', ' | ')::tsquery from unnest((q).queries) as query);
    -- of messages, of slices
    b float8[] := array[(knobs ->> 'message_length_normalisation')::float8, (knobs ->> 'length_normalisation')::float8];
    scale float8[] := array[(knobs ->> 'message_keyword_scale')::float8, (knobs ->> 'keyword_scale')::float8];
    previous float8[] := array[(knobs ->> 'neighbour_previous')::float8, (knobs ->> 'neighbour_slice')::float8];
    next float8[] := array[(knobs ->> 'neighbour_next')::float8, (knobs ->> 'neighbour_slice')::float8];
    two_away float8[] := array[(knobs ->> 'neighbour_two_away')::float8, 0];
    -- how many are looked at on each side: none where none lends words
    reach int[] := array[
        case when previous[1] + next[1] + two_away[1] > 0 then 4 else 0 end, case when previous[2] > 0 then 4 else 0 end
    ];
begin
    return query
    with near as materialized (
        select n.chunk_id, min(n.distance) as distance
        from unnest(seeds) as seed (id)
        join almagest.lexical as s on s.chunk_id = seed.id
        cross join lateral (
            select s.chunk_id, 0 as distance
            union all
            (
                select l.chunk_id, row_number() over (order by l.place desc, l.chunk_id desc) as distance
                from almagest.lexical as l
                where l.sequence = s.sequence and l.state = s.state and (l.place, l.chunk_id) < (s.place, s.chunk_id)
                order by l.place desc, l.chunk_id desc
                limit case when s.sequence <> s.item_id then reach[1] else reach[2] end
            )
            union all
            (
                select l.chunk_id, row_number() over (order by l.place, l.chunk_id) as distance
                from almagest.lexical as l
                where l.sequence = s.sequence and l.state = s.state and (l.place, l.chunk_id) > (s.place, s.chunk_id)
                order by l.place, l.chunk_id
                limit case when s.sequence <> s.item_id then reach[1] else reach[2] end
            )
        ) as n
        group by n.chunk_id
    ),
    counted as materialized (
        select
            l.chunk_id, l.item_id, l.sequence, l.state, l.place, l.length, l.terms, l.says_when, l.only_asks, l.text_hash,
            near.distance,
            case when l.sequence <> l.item_id then 1 else 2 end as sort,
            array(
                -- the inverse of ts_rank, see engine.score_expression
                select round(1::float8 / (1.64493406685::float8 * (1::float8 - r.rank)) - 0.5::float8)
                from (select ts_rank('{0,0,1,1}', l.terms, unnest(queries)) as rank) as r
            ) as own
        from near
        join almagest.lexical as l on l.chunk_id = near.chunk_id
    ),
    windows as (
        select
            c.*, 1.2::float8 * (1 - b[c.sort] + b[c.sort] * c.length / average_length) as k,
            lag(c.own) over w as before, lead(c.own) over w as after,
            lag(c.own, 2) over w as two_before, lead(c.own, 2) over w as two_after
        from counted as c
        window w as (partition by c.sequence, c.state order by c.place, c.chunk_id)
    )
    select
        w.chunk_id, w.item_id, w.sequence, coalesce(s.score / (s.score + scale[w.sort]), 0), coalesce(s.held::float8 / nullif(asked, 0), 0),
        coalesce(s.identifiers / all_idf, 0), case when w.terms @@ in_attributes then (
            select count(*) from unnest(queries) as q where ts_rank('{0,0,1,0}', w.terms, q) > 0
        ) else 0 end,
        w.says_when, w.only_asks, w.text_hash
    from windows as w
    cross join lateral (
        select
            sum(f.idf * 2.2::float8 * f.frequency / (f.frequency + w.k)) as score,
            count(*) filter (where f.own > 0) as held,
            sum(case when f.own > 0 then f.identifier_idf end) as identifiers
        from (
            select
                t.own, t.idf, t.identifier_idf,
                t.own + previous[w.sort] * coalesce(t.before, 0) + next[w.sort] * coalesce(t.after, 0)
                + two_away[w.sort] * (coalesce(t.two_before, 0) + coalesce(t.two_after, 0)) as frequency
            from (
                select
                    unnest(idfs) as idf, unnest(identifier_idfs) as identifier_idf,
                    unnest(w.own) as own, unnest(w.before) as before, unnest(w.after) as after,
                    unnest(w.two_before) as two_before, unnest(w.two_after) as two_after
            ) as t
        ) as f
    ) as s
    where w.distance <= 2;
end
$$;
