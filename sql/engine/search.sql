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

-- The class of a fused score, before strength: high, standard or low.
create or replace function engine.relevance_class(hybrid float8, knobs jsonb)
returns text language sql immutable parallel safe as $$
    select case
        when hybrid >= (knobs ->> 'high')::float8 then 'high'
        when hybrid >= (knobs ->> 'standard')::float8 then 'standard'
        else 'low'
    end
$$;

-- terms, query, model, mode  what is asked, and which legs answer
-- pool                       how many candidates each leg sends
-- Returns the candidate items above the floor, best first, each with its best chunk and its scores (all 0..1, higher is
-- better; keyword and vector null where that leg did not run or has nothing to go by, metadata null where it has no
-- weight).
-- Planned for each call (with a generic plan one tenant's search has been seen to take 70 times as long), and alone so:
-- under this setting every call of an SQL function that is not inlined is planned anew as well. Joined in the order in
-- which it is written, since to look for a better one takes as long as a small org's whole ranking.
create or replace function engine.rank_items(
    c engine.caller, terms text[], query @extschema:vector@.halfvec, model smallint, mode text,
    states text[], filters jsonb, knobs jsonb, pool int
)
returns table (
    item_id uuid, chunk_id bigint, hybrid float8, vector float8, keyword float8, metadata float8,
    strength float8, final float8
)
language plpgsql stable set plan_cache_mode = force_custom_plan set join_collapse_limit = 1 as $$
#variable_conflict use_column
declare
    keyword_weight float8 := case when mode <> 'vector' then (knobs ->> 'keyword_weight')::float8 else 0 end;
    vector_weight float8 := case when mode <> 'lexical' then (knobs ->> 'vector_weight')::float8 else 0 end;
    metadata_weight float8 := (knobs ->> 'metadata_weight')::float8;
    -- the weights of the legs that run add up to 1
    total_weight float8 := nullif(keyword_weight + vector_weight + metadata_weight, 0);
    strength_low float8 := (knobs ->> 'strength_low')::float8;
begin
    return query
    with keyword_hits as materialized (
        select l.chunk_id, l.item_id, l.score / (l.score + (knobs ->> 'keyword_scale')::float8) as score, l.matched
        from engine.keyword_leg(c, terms, states, filters, (knobs ->> 'length_normalisation')::float8) as l
        where mode <> 'vector'
    ),
    vector_hits as materialized (
        select v.chunk_id, v.item_id, v.similarity
        from engine.vector_leg(c, query, model, states, filters, (knobs ->> 'vector_threshold')::float8, pool) as v
        where mode <> 'lexical'
    ),
    -- one chunk an item, so that a long document does not fill the pool
    best_keyword_hits as materialized (
        select h.chunk_id, h.item_id
        from (select distinct on (k.item_id) k.* from keyword_hits as k order by k.item_id, k.score desc, k.chunk_id) as h
        order by h.score desc, h.chunk_id desc
        limit pool
    ),
    -- what one leg has sent is scored by the other one too
    cosines as materialized (
        select s.chunk_id, s.similarity
        from engine.similarities(query, model, array(select h.chunk_id from best_keyword_hits as h)) as s
        where mode = 'hybrid'
    ),
    scored as (
        select
            k.chunk_id, k.item_id, h.matched,
            case when mode <> 'vector' then coalesce(h.score, 0) end as keyword,
            case
                when mode <> 'lexical' and (v.similarity is not null or s.similarity is not null)
                    then least(1, greatest(0, coalesce(v.similarity, s.similarity)))
            end as vector
        from (
            select b.chunk_id, b.item_id from best_keyword_hits as b
            union
            select n.chunk_id, n.item_id from vector_hits as n
        ) as k
        left join keyword_hits as h on h.chunk_id = k.chunk_id
        left join vector_hits as v on v.chunk_id = k.chunk_id
        left join cosines as s on s.chunk_id = k.chunk_id
    ),
    best_chunks as materialized (
        select distinct on (s.item_id)
            s.*,
            -- a chunk that waits for its vector is taken to mean nearly as much of the query as its words are
            coalesce(s.keyword * keyword_weight, 0) + coalesce(s.vector, 0.9 * s.matched, 0) * vector_weight as legs
        from scored as s
        order by s.item_id, legs desc, s.chunk_id
    ),
    types as materialized (
        select t.name, t.strength_floor from engine.item_types((c).org_id) as t
    ),
    weighed as (
        select
            b.*, m.score as metadata, (i.user_id is not null) as own, i.updated_at,
            least(1, coalesce((b.legs + coalesce(m.score, 0) * metadata_weight) / total_weight, 0)) as hybrid,
            engine.strength(s.starting_strength, t.strength_floor, i.evergreen) as strength
        from best_chunks as b
        join almagest.items as i on i.id = b.item_id
        left join almagest.strength_signals as s on s.item_id = b.item_id
        left join types as t on t.name = i.type
        -- reading items' attributes costs more than all else here
        left join engine.metadata_scores(
            terms, case when metadata_weight > 0 then array(select h.item_id from best_chunks as h) end
        ) as m on m.item_id = b.item_id
        -- the predicate once more, on the item itself: what a chunk's copy says may be older
        where engine.visible(c, i.org_id, i.user_id, i.client_id, i.deal_id, i.agent_ids) and i.state = any(states)
    )
    select w.item_id, w.chunk_id, w.hybrid, w.vector, w.keyword, w.metadata, w.strength, f.final
    from weighed as w
    cross join lateral (select w.hybrid * (strength_low + (1 - strength_low) * w.strength) as final) as f
    where w.hybrid > 0 and w.hybrid >= (knobs ->> 'fused_floor')::float8
    -- rounded, since two sums of the same parts may differ in the last bit: then the caller's own before the shared
    order by round(f.final::numeric, 9) desc, w.own desc, w.updated_at desc, w.chunk_id desc;
end
$$;

-- request: see api.search. Returns {mode, degraded_reason, results, trace_id}; the answer of POST /v1/search.
create or replace function engine.search(c engine.caller, request jsonb, purpose text)
returns jsonb language plpgsql as $$
declare
    profile text := coalesce(request ->> 'profile', 'user_search');
    knobs jsonb := engine.knobs(c, profile);
    terms text[] := engine.query_terms(request ->> 'query');
    vector @extschema:vector@.halfvec := engine.parse_vector(request ->> 'embedding');
    model smallint := engine.model_id(request ->> 'model');
    states text[] := case
        when coalesce((request ->> 'include_archived')::boolean, false) then '{active,archived}' else '{active}'
    end;
    filters jsonb := coalesce(jsonb_strip_nulls(nullif(request -> 'filters', 'null')), '{}');
    k int := coalesce((request ->> 'k')::int, 10);
    how record;
    ranked jsonb;
    found int;
    results jsonb;
    trace_id uuid;
begin
    -- The index scan goes on until enough rows have passed the filters.
    perform set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', '60', true);
    how := engine.search_mode(terms, vector is not null, model is not null, request ->> 'degraded_reason');

    with all_ranked as materialized (
        select row_number() over () as place, item.*
        from engine.rank_items(
            c, terms, vector, model, how.mode, states, filters, knobs, greatest((knobs ->> 'candidates')::int, 2 * k)
        ) as item
    ),
    best as (
        select * from all_ranked where place <= k
    )
    select
        (select count(*) from all_ranked),
        coalesce(jsonb_agg(to_jsonb(b) || jsonb_build_object('metadata', m.score) order by b.place), '[]')
    into found, ranked
    from best as b
    join engine.metadata_scores(terms, array(select item_id from best)) as m on m.item_id = b.item_id;

    results := engine.read_results(ranked, knobs);
    trace_id := engine.record_retrieval(
        c, purpose, request, profile, how.mode, how.reason, found, results,
        jsonb_build_object('terms', cardinality(terms), 'knobs', knobs, 'filters', filters)
    );
    return jsonb_build_object(
        'mode', how.mode, 'degraded_reason', how.reason, 'results', results, 'trace_id', trace_id
    ) || case
        when coalesce((request ->> 'explain')::boolean, false) then jsonb_build_object(
            'explain', jsonb_build_object('terms', to_jsonb(terms), 'candidates', found, 'knobs', knobs)
        )
        else '{}'
    end;
end
$$;
