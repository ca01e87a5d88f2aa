-- Search: both legs, fused, weighed by strength, one chunk an item.

-- Which parts could answer, in order of preference; reason is why not hybrid, null where it is.
create or replace function engine.search_mode(
    terms text[], has_vector boolean, has_model boolean, embedding_reason text,
    out mode text, out reason text
)
language sql immutable parallel safe as $$
    select
        case
            when has_vector and has_model and cardinality(terms) > 0 then 'hybrid'
            when has_vector and has_model then 'vector'
            else 'lexical'
        end,
        case
            when not has_vector then coalesce(embedding_reason, 'no_embedding')
            when not has_model then 'no_vectors_of_this_model'
            when cardinality(terms) = 0 then 'no_terms_in_query'
        end
$$;

-- How well items' own attributes match: the share of the query's terms that stand in the title, tags or origin, 0..1.
create or replace function engine.metadata_scores(terms text[], items uuid[])
returns table (item_id uuid, score float8) language sql stable as $$
    select i.id, (
        select count(*) from unnest(terms) as term where term = any(tsvector_to_array(attributes.own_terms))
    )::float8 / greatest(cardinality(terms), 1)
    from almagest.items as i
    cross join lateral (
        select engine.tokenise(concat_ws(
            ' ', i.title, (select string_agg(t.tag, ' ') from almagest.item_tags as t where t.item_id = i.id), i.origin
        )) as own_terms
        offset 0 -- once an item, not once a term
    ) as attributes
    where i.id = any(items)
$$;

-- The candidates of an answer with their metadata scores, also where these had no weight in the ranking.
create or replace function engine.with_metadata(best engine.candidate[], terms text[])
returns engine.candidate[] language sql stable as $$
    select array_agg(
        (
            b.chunk_id, b.item_id, b.keyword, b.matched, b.vector, coalesce(b.metadata, m.score), b.boosts, b.hybrid,
            b.relevance, b.strength, b.final, b.cut
        )::engine.candidate
        order by b.place
    )
    from unnest(best) with ordinality as b (
        chunk_id, item_id, keyword, matched, vector, metadata, boosts, hybrid, relevance, strength, final, cut, place
    )
    left join engine.metadata_scores(terms, array(select u.item_id from unnest(best) as u where u.metadata is null)) as m
    on m.item_id = b.item_id
$$;

-- How well a candidate answers, on a scale that does not drift as an org grows: the share of the query's idf that it
-- holds, and its cosine, each where that leg ran.
create or replace function engine.calibrated(matched float8, vector float8, mode text)
returns float8 language sql immutable parallel safe as $$
    select case mode when 'hybrid' then 0.5 * matched + 0.5 * vector when 'vector' then vector else matched end
$$;

-- The class of a calibrated score, before strength: high, standard or low.
create or replace function engine.relevance_class(calibrated float8, knobs jsonb)
returns text language sql immutable parallel safe as $$
    select case
        when calibrated >= (knobs ->> 'high')::float8 then 'high'
        when calibrated >= (knobs ->> 'standard')::float8 then 'standard'
        else 'low'
    end
$$;

-- The fused score of the legs, 0..1.
--   keyword, vector, metadata  null where the leg did not run
--   weights                    theirs, in this order; 0 for a leg that did not run
--   cap                        the most that the keyword leg counts for, or null
create or replace function engine.fuse(
    keyword float8, vector float8, metadata float8, weights float8[], cap float8
)
returns float8 language sql immutable parallel safe as $$
    select (
        weights[1] * coalesce(least(keyword, cap), 0) + weights[2] * coalesce(vector, 0)
        + weights[3] * coalesce(metadata, 0)
    ) / nullif(weights[1] + weights[2] + weights[3], 0)
$$;

-- Reciprocal rank fusion (Cormack et al. 2009, k = 60) of the two legs, scaled so that the first of both has 1.
create or replace function engine.fuse_ranks(keyword_rank bigint, vector_rank bigint, weights float8[])
returns float8 language sql immutable parallel safe as $$
    select 61 * (weights[1] / (60 + keyword_rank) + weights[2] / (60 + vector_rank)) / nullif(weights[1] + weights[2], 0)
$$;

-- asked           the query's text; q its terms
-- keyword_ids, vector_ids   chunks that the legs send
-- items           only these, or null for all
-- Returns a candidate for each item that the legs found, or that lies beside what they found, best first; those that
-- fall out say why in cut. What it reads it reads by primary key, so one plan serves all calls, in the order in which
-- the joins are written; to plan it anew would take longer than to run it.
create or replace function engine.rank_items(
    c engine.caller, asked text, q engine.query_terms, query @extschema:vector@.halfvec, model smallint, mode text,
    states text[], items uuid[], knobs jsonb, keyword_ids bigint[], vector_ids bigint[]
)
returns setof engine.candidate language plpgsql stable
set plan_cache_mode = force_generic_plan set join_collapse_limit = 1 as $$
#variable_conflict use_column
declare
    around_ids bigint[];
    distances int[];
    pool_ids bigint[];
    wish record := engine.parse_query(asked);
    identifiers tsquery := (
        select string_agg(engine.term_query(i)::text, ' | ')::tsquery from engine.identifiers(engine.fold(left(asked, 1000))) as i
    );
    author_boost float8 := (knobs ->> 'author_boost')::float8;
    date_boost float8 := (knobs ->> 'date_boost')::float8;
    when_boost float8 := case when wish.asks_when then (knobs ->> 'when_boost')::float8 else 0 end;
    question_turn_share float8 := (knobs ->> 'question_turn_share')::float8;
    conversation_boost float8 := (knobs ->> 'conversation_boost')::float8;
    strength_low float8 := (knobs ->> 'strength_low')::float8;
    metadata_weight float8 := (knobs ->> 'metadata_weight')::float8;
    weights float8[] := array[
        case when mode <> 'vector' then (knobs ->> 'keyword_weight')::float8 else 0 end,
        case when mode <> 'lexical' then (knobs ->> 'vector_weight')::float8 else 0 end,
        metadata_weight
    ];
    by_ranks boolean := knobs ->> 'fusion' = 'rrf' and mode = 'hybrid';
    vector_threshold float8 := (knobs ->> 'vector_threshold')::float8;
    keyword_only_cap float8 := (knobs ->> 'keyword_only_cap')::float8;
begin
    select array_agg(a.chunk_id), array_agg(a.distance), array_agg(a.chunk_id) filter (where a.distance <= 2)
    into around_ids, distances, pool_ids
    from engine.around(keyword_ids || vector_ids) as a;

    return query
    with windows as materialized (
        select w.* from engine.windowed_scores(q, around_ids, distances, knobs) as w
    ),
    cosines as materialized (
        select s.chunk_id, s.similarity from engine.similarities(query, model, pool_ids) as s where mode <> 'lexical'
    ),
    attributes as materialized (
        select m.item_id, m.score
        from engine.metadata_scores((q).terms, case
            when metadata_weight > 0 then array(select distinct k.item_id from almagest.chunks as k where k.id = any(pool_ids))
        end) as m
    ),
    legs as (
        select
            k.id as chunk_id, k.item_id, i.conversation_id, i.agent_name, i.occurred_at, i.type, i.evergreen, i.updated_at,
            i.user_id is not null as own, k.text, m.score as metadata,
            case when mode <> 'vector' then w.score end as keyword, w.matched,
            -- null where there is no vector yet
            case when mode <> 'lexical' and v.similarity is not null then least(1, greatest(0, v.similarity)) end as vector,
            coalesce(l.terms @@ identifiers, false) as exact
        from windows as w
        join almagest.chunks as k on k.id = w.chunk_id
        join almagest.lexical as l on l.chunk_id = w.chunk_id
        join almagest.items as i on i.id = k.item_id
        left join cosines as v on v.chunk_id = w.chunk_id
        left join attributes as m on m.item_id = k.item_id
        -- the predicate once more, on the item itself: what a chunk's copy says may be older
        where engine.visible(c, i.org_id, i.user_id, i.client_id, i.deal_id, i.agent_ids) and i.state = any(states)
            and (items is null or i.id in (select unnest(items))) -- hashed; = any would read the array a row
    ),
    fused as (
        select l.*, coalesce(case
            when by_ranks then engine.fuse_ranks(
                row_number() over (order by l.keyword desc nulls last, l.chunk_id desc),
                row_number() over (order by l.vector desc nulls last, l.chunk_id desc), weights
            )
            else engine.fuse(
                -- a chunk that waits for its vector is taken to mean nearly as much of the query as its words are
                l.keyword, case when mode <> 'lexical' then coalesce(l.vector, 0.9 * l.matched) end, l.metadata, weights,
                -- a hit with only words to speak for it, unless one of them is the very identifier that was asked for
                case when mode = 'hybrid' and l.vector < vector_threshold and not l.exact then keyword_only_cap end
            )
        end, 0) as legs
        from legs as l
    ),
    -- one chunk an item
    best_chunks as materialized (
        select distinct on (f.item_id) f.* from fused as f order by f.item_id, f.legs desc, f.chunk_id
    ),
    boosted as (
        select b.*,
            case when strpos(wish.words, ' ' || lower(b.agent_name) || ' ') > 0 then author_boost else 0 end as author,
            case when cardinality(wish.years || wish.months || wish.days) > 0 and b.occurred_at is not null
                then date_boost * (
                    (cardinality(wish.years) = 0 or extract(year from b.occurred_at)::int = any(wish.years))::int
                    * (cardinality(wish.months) = 0 or extract(month from b.occurred_at)::int = any(wish.months))::int
                    * (1 + (extract(day from b.occurred_at)::int = any(wish.days))::int) / 2.0
                )
                else 0
            end as date,
            case when b.conversation_id is not null
                then conversation_boost * max(b.legs) over (partition by b.conversation_id) else 0
            end as conversation,
            case when when_boost > 0 and engine.says_when(b.text) then when_boost else 0 end as said_when,
            case when b.conversation_id is not null and engine.only_asks(b.text) then question_turn_share else 1 end as asking
        from best_chunks as b
    ),
    types as materialized (
        select t.name, t.strength_floor from engine.item_types((c).org_id) as t
    ),
    weighed as (
        select b.*, least(1, (b.legs + b.author + b.date + b.conversation + b.said_when) * b.asking) as hybrid,
            engine.strength(s, t.strength_floor, b.evergreen, now()) as strength
        from boosted as b
        left join almagest.strength_signals as s on s.item_id = b.item_id
        left join types as t on t.name = b.type
    )
    select
        w.chunk_id, w.item_id, w.keyword, w.matched, w.vector, w.metadata,
        jsonb_strip_nulls(jsonb_build_object(
            'author', nullif(w.author, 0), 'date', nullif(w.date, 0), 'conversation', nullif(w.conversation, 0),
            'when', nullif(w.said_when, 0), 'question_turn', nullif(w.asking, 1)
        )),
        w.hybrid, engine.relevance_class(engine.calibrated(w.matched, coalesce(w.vector, 0), mode), knobs), w.strength, f.final,
        case when w.legs <= 0 or w.legs < (knobs ->> 'fused_floor')::float8 then 'floor' end
    from weighed as w
    cross join lateral (select w.hybrid * (strength_low + (1 - strength_low) * w.strength) as final) as f
    -- rounded, since two sums of the same parts may differ in the last bit: then the caller's own before the shared
    order by round(f.final::numeric, 9) desc, w.own desc, w.updated_at desc, w.chunk_id desc;
end
$$;

-- request: see api.search. Returns {mode, degraded_reason, results, trace_id}; the answer of POST /v1/search.
create or replace function engine.search(c engine.caller, request jsonb, purpose text)
returns jsonb language plpgsql as $$
declare
    started timestamptz := clock_timestamp();
    profile text := coalesce(request ->> 'profile', 'user_search');
    asked text := request ->> 'query';
    vector @extschema:vector@.halfvec := engine.parse_vector(request ->> 'embedding');
    model smallint := engine.model_id(request ->> 'model');
    as_of timestamptz := (request ->> 'as_of')::timestamptz;
    states text[] := case
        when coalesce((request ->> 'include_archived')::boolean, false) then '{active,archived}' else '{active}'
    end;
    filters jsonb := engine.given_filters(request -> 'filters');
    k int := coalesce((request ->> 'k')::int, 10);
    terms text[] := engine.query_terms(asked);
    how record;
    knobs jsonb;
    items uuid[];
    within bigint[];
    candidates jsonb;
    pool int;
    q engine.query_terms;
    by_keyword record;
    by_vector bigint[];
    stages jsonb;
    ranked engine.candidate[];
    best engine.candidate[];
    results jsonb;
    trace jsonb;
    trace_id uuid;
begin
    -- The index scan goes on until enough rows have passed the filters.
    perform set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', '60', true);
    how := engine.search_mode(terms, vector is not null, model is not null, request ->> 'degraded_reason');
    knobs := engine.mode_knobs(engine.knobs(c, profile), how.mode);
    pool := greatest((knobs ->> 'candidates')::int, 2 * k);
    if filters <> '{}' or as_of is not null then
        within := engine.matching_chunks(c, states, filters, as_of);
        items := array(select distinct l.item_id from almagest.chunks as l where l.id in (select unnest(within)));
        states := case when as_of is null then states else '{active,archived,revoked,replaced}' end;
    end if;
    q := engine.weigh_terms(c, terms, states);
    stages := jsonb_build_object('terms', engine.milliseconds_since(started));

    select l.chunk_ids, l.exact into by_keyword
    from engine.keyword_leg(c, q, states, items, knobs, pool) as l
    where how.mode <> 'vector';
    stages := stages || jsonb_build_object('keyword', engine.milliseconds_since(started));
    by_vector := array(
        select v.chunk_id
        from engine.vector_leg(c, vector, model, states, items, (knobs ->> 'vector_threshold')::float8, pool) as v
        where how.mode <> 'lexical'
    );
    stages := stages || jsonb_build_object('vector', engine.milliseconds_since(started));
    if as_of is not null then
        -- the legs look at items: what they found of other versions gives way to the version valid then
        select array_agg(then_valid.id) into by_vector
        from almagest.chunks as found
        join almagest.chunks as then_valid on then_valid.item_id = found.item_id
        where found.id = any(by_keyword.chunk_ids || by_vector) and then_valid.id in (select unnest(within));
        by_keyword.chunk_ids := '{}';
    end if;
    ranked := array(
        select r from engine.rank_items(
            c, asked, q, vector, model, how.mode, states, items, knobs, by_keyword.chunk_ids, by_vector
        ) as r
    );
    stages := stages || jsonb_build_object('rank', engine.milliseconds_since(started));
    best := engine.with_metadata(engine.diversify(ranked, model, (knobs ->> 'mmr_lambda')::float8, k), terms);
    stages := stages || jsonb_build_object('diversify', engine.milliseconds_since(started));
    results := engine.read_results(best, terms, as_of);
    candidates := engine.trace_candidates(engine.in_final_order(best, ranked), k);
    stages := stages || jsonb_build_object('read', engine.milliseconds_since(started));

    trace := jsonb_build_object(
        'terms', to_jsonb((q).terms), 'counted', (q).counted, 'knobs', knobs, 'filters', filters,
        'legs', jsonb_build_object(
            'keyword', coalesce(cardinality(by_keyword.chunk_ids), 0), 'vector', cardinality(by_vector)
        ),
        'exact', by_keyword.exact, 'found', cardinality(ranked),
        'candidates', candidates, 'stages_ms', stages
    ) || jsonb_strip_nulls(jsonb_build_object(
        'as_of', request -> 'as_of', 'include_archived', nullif(request -> 'include_archived', 'false')
    ));
    trace_id := engine.record_retrieval(
        c, purpose, request, profile, how.mode, how.reason, cardinality(ranked), results, trace
    );
    return jsonb_build_object(
        'mode', how.mode, 'degraded_reason', how.reason, 'results', results, 'trace_id', trace_id,
        'next_cursor', engine.cursor_after(trace_id, candidates, cardinality(best))
    ) || case
        when request ->> 'why_not' is not null then jsonb_build_object(
            'explain', trace || jsonb_build_object('why_not', engine.why_not(
                c, (request ->> 'why_not')::uuid, how.mode, states, filters, knobs, q, vector, model, k, ranked, best
            ))
        )
        when coalesce((request ->> 'explain')::boolean, false) then jsonb_build_object('explain', trace)
        else '{}'
    end;
end
$$;

-- Milliseconds from a moment to now, the time of the clock and not of the transaction.
create or replace function engine.milliseconds_since(started timestamptz)
returns numeric language sql volatile as $$
    select round(extract(epoch from clock_timestamp() - started)::numeric * 1000, 2)
$$;
