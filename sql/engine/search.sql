-- Search: what the caller may see, found by words and by meaning, ranked, diversified, read and accounted for.

-- Which legs answer, in order of preference hybrid, vector, lexical, substring.
--   asked         legs that were asked for: keyword, vector
--   words_gone    why there are no keywords to search by, or null; vectors_gone likewise
-- A leg that was not asked for stands in for one that is gone. reason is why an asked leg did not answer.
create or replace function engine.search_mode(
    asked text[], words_gone text, vectors_gone text, out mode text, out reason text
)
language sql immutable parallel safe as $$
    select
        case
            when words and vectors then 'hybrid'
            when vectors then 'vector'
            when words then 'lexical'
            else 'substring'
        end,
        coalesce(case when 'vector' = any(asked) then vectors_gone end, case when 'keyword' = any(asked) then words_gone end)
    from (
        select
            words_gone is null and ('keyword' = any(asked) or vectors_gone is not null) as words,
            vectors_gone is null and ('vector' = any(asked) or words_gone is not null) as vectors
    ) as l
$$;

-- Why the keyword leg cannot answer; null where it can.
--   size  how many chunks with words the caller may search; null while it is not known
create or replace function engine.words_gone(c engine.caller, terms text[], states text[], size float8)
returns text language plpgsql stable
set enable_seqscan = off as $$ -- or an org that is empty would be looked for among the rows of all others
begin
    return case
        when terms = '{}' then 'no_terms_in_query'
        when not engine.has_index('almagest.lexical', 'gin%') then 'keyword_index_missing'
        when size = 0 and exists (
            select from almagest.items as i
            where engine.visible(c, i.org_id, i.user_id, i.client_id, i.deal_id, i.agent_ids) and i.state = any(states)
        ) then 'no_words_indexed'
    end;
end
$$;

-- Why the vector leg cannot answer; null where it can. A few chunks are compared one by one, without an index.
--   has_items  whether the caller may search anything that could have vectors
create or replace function engine.vectors_gone(
    c engine.caller, query @extschema:vector@.halfvec, model smallint, embedding_reason text, size float8,
    has_items boolean
)
returns text language plpgsql stable
set enable_seqscan = off as $$
begin
    return case
        when query is null then coalesce(embedding_reason, 'no_embedding')
        when model is null then 'no_vectors_of_this_model'
        when size > engine.few_chunks() and not engine.has_index('almagest.embeddings', format('hnsw%%WHERE (model_id = %s)', model))
            then 'vector_index_missing'
        when has_items and not engine.has_vectors(c, model) then 'no_vectors_of_this_model'
    end;
end
$$;

-- Whether the caller may search anything with a vector of a model, whatever others have. Their own rows and shared ones
-- are asked for apart: each lie together in the index, not behind the private rows of others. So the first row tells,
-- but for who sees next to nothing of a large org; their vector leg reads the same rows.
create or replace function engine.has_vectors(c engine.caller, model smallint)
returns boolean language plpgsql stable as $$
begin
    return exists (
        select from almagest.embeddings as e
        where e.model_id = model and e.user_id = (c).user_id and e.state <> 'provisional'
            and engine.visible(c, e.org_id, e.user_id, e.client_id, e.deal_id, e.agent_ids)
    ) or exists (
        select from almagest.embeddings as e
        where e.model_id = model and e.user_id is null and e.state <> 'provisional'
            and engine.visible(c, e.org_id, e.user_id, e.client_id, e.deal_id, e.agent_ids)
    );
end
$$;

-- Whether a table has a valid index whose definition is like a pattern.
create or replace function engine.has_index(indexed regclass, pattern text)
returns boolean language plpgsql stable as $$
begin
    return exists (
        select from pg_catalog.pg_index as i
        where i.indrelid = indexed and i.indisvalid and pg_catalog.pg_get_indexdef(i.indexrelid) like '%USING ' || pattern
    );
end
$$;

-- Runs the legs that answer, and where one fails, those that are left.
--   legs, words_gone, vectors_gone   see engine.search_mode
--   profile_knobs                    of all modes; knobs: of the mode that it came to
--   stages                           see engine.stage
-- keyword_ids is null where that leg did not run, vector_ids and substring_ids likewise; exact see engine.keyword_leg.
create or replace function engine.run_legs(
    c engine.caller, legs text[], words_gone text, vectors_gone text, asked text, q engine.query_terms,
    vector @extschema:vector@.halfvec, model smallint, states text[], within bigint[], by_chunk boolean, k int,
    profile_knobs jsonb, started timestamptz, inout stages jsonb,
    out mode text, out reason text, out knobs jsonb, out keyword_ids bigint[], out exact boolean,
    out vector_ids bigint[], out substring_ids bigint[], out substring_scores float8[]
)
language plpgsql stable as $$
declare
    pool int;
begin
    loop
        select m.mode, m.reason into mode, reason from engine.search_mode(legs, words_gone, vectors_gone) as m;
        knobs := engine.mode_knobs(profile_knobs, mode);
        pool := greatest((knobs ->> 'candidates')::int, 2 * k);
        if mode in ('hybrid', 'lexical') and keyword_ids is null then
            begin
                select coalesce(l.chunk_ids, '{}'), l.exact into keyword_ids, exact
                from engine.keyword_leg(c, q, states, within, by_chunk, knobs, pool, k) as l;
            exception when others then
                raise warning 'the keyword leg failed: %', sqlstate; -- the message may quote content
                words_gone := 'keyword_leg_failed';
                continue;
            end;
            stages := engine.stage(stages, 'keyword', started);
        end if;
        -- signs alone, such as '->', have no words and mean nothing: they may stand somewhere as they are
        if substring_ids is null
            and (mode = 'substring' or (mode = 'vector' and 'keyword' = any(legs) and engine.only_signs(asked)))
        then
            select coalesce(array_agg(s.chunk_id), '{}'), array_agg(s.score) into substring_ids, substring_scores
            from engine.substring_leg(c, asked, states, within, pool) as s;
            stages := engine.stage(stages, 'substring', started);
            if mode = 'vector' and substring_ids <> '{}' then
                vectors_gone := 'no_terms_in_query'; -- which is no less true of them
                continue;
            end if;
        end if;
        if mode in ('hybrid', 'vector') and vector_ids is null then
            begin
                vector_ids := array(
                    select v.chunk_id
                    from engine.vector_leg(
                        c, vector, model, states, within, by_chunk, (q).size, (knobs ->> 'vector_threshold')::float8,
                        pool
                    ) as v
                );
            exception when others then
                raise warning 'the vector leg failed: %', sqlstate;
                vectors_gone := 'vector_leg_failed';
                continue;
            end;
            stages := engine.stage(stages, 'vector', started);
        end if;
        exit;
    end loop;
end
$$;

-- What the trace of a search tells of it.
create or replace function engine.search_trace(
    request jsonb, terms text[], counted text, by_chunk boolean, filters jsonb, legs record, ranked record,
    ordered record, stages jsonb
)
returns jsonb language plpgsql stable as $$
begin
    return jsonb_build_object(
        'terms', to_jsonb(terms), 'counted', counted, 'knobs', legs.knobs, 'filters', filters,
        'level', case when by_chunk then 'chunk' else 'item' end,
        'legs', jsonb_strip_nulls(jsonb_build_object(
            'keyword', cardinality(legs.keyword_ids), 'vector', cardinality(legs.vector_ids),
            'substring', cardinality(legs.substring_ids)
        )),
        'exact', legs.exact, 'found', ranked.total,
        'candidates', engine.trace_candidates(ordered.candidates), 'mmr', coalesce(ordered.decisions, '[]'),
        'stages_ms', stages
    ) || jsonb_strip_nulls(jsonb_build_object(
        'as_of', request -> 'as_of', 'include_archived', nullif(request -> 'include_archived', 'false')
    ));
end
$$;

-- request: see api.search. Returns {mode, degraded_reason, results, trace_id, next_cursor}; the answer of POST
-- /v1/search.
create or replace function engine.search(c engine.caller, request jsonb, purpose text)
returns jsonb language plpgsql as $$
declare
    started timestamptz := clock_timestamp();
    profile text := coalesce(request ->> 'profile', 'user_search');
    asked text := request ->> 'query';
    asked_legs text[] := array(select jsonb_array_elements_text(nullif(request -> 'legs', 'null')));
    vector @extschema:vector@.halfvec := engine.parse_vector(request ->> 'embedding');
    model smallint := engine.model_id(request ->> 'model');
    as_of timestamptz := (request ->> 'as_of')::timestamptz;
    states text[] := engine.asked_states(request);
    filters jsonb := engine.given_filters(request -> 'filters');
    by_chunk boolean := coalesce(request ->> 'level' = 'chunk', false);
    k int := coalesce((request ->> 'k')::int, 10);
    terms text[] := engine.query_terms(asked);
    words_gone text;
    vectors_gone text;
    within bigint[];
    q engine.query_terms;
    stages jsonb := '{}';
    legs record;
    ranked record;
    ordered record;
    answer engine.candidate[];
    results jsonb;
    trace jsonb;
    trace_id uuid;
begin
    if asked_legs = '{}' then
        asked_legs := '{keyword,vector}';
    end if;
    -- The index scan looks so widely that it finds .98 of what an exact scan of 100,000 chunks finds, and .86 of a
    -- million's (twice as widely .90), and goes on until enough rows have passed the filters; workers and compilation
    -- take longer to start than any of this takes; and what the word index finds must fit, row by row, or whole pages
    -- would be looked through.
    perform set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', '400', true),
        set_config('max_parallel_workers_per_gather', '0', true), set_config('jit', 'off', true),
        set_config('work_mem', '64MB', true);
    if filters <> '{}' or as_of is not null then
        within := engine.matching_chunks(c, states, filters, as_of);
        -- within tells which of these were active then
        states := case when as_of is null then states else '{active,archived,revoked,replaced}' end;
    end if;
    stages := engine.stage(stages, 'filter', started);

    words_gone := engine.words_gone(c, terms, states, null);
    q := engine.weigh_terms(
        c, asked, case when words_gone is null then terms else '{}' end, engine.asked_states(request),
        case when as_of is not null then states end
    );
    words_gone := coalesce(words_gone, engine.words_gone(c, terms, states, (q).size));
    vectors_gone := engine.vectors_gone(
        c, vector, model, request ->> 'degraded_reason', (q).size,
        (q).size > 0 or coalesce(words_gone = 'no_words_indexed', false)
    );
    stages := engine.stage(stages, 'terms', started);

    legs := engine.run_legs(
        c, asked_legs, words_gone, vectors_gone, asked, q, vector, model, states, within, by_chunk, k,
        engine.knobs(c, profile), started, stages
    );
    if as_of is not null then
        legs.knobs := engine.without_neighbours(legs.knobs);
    end if;
    ranked := engine.rank(
        c, asked, terms, q, vector, model, legs.mode, states,
        legs.keyword_ids || legs.vector_ids || legs.substring_ids, legs.substring_scores, within, by_chunk, legs.knobs,
        greatest(60, 3 * k), as_of
    );
    stages := engine.stage(legs.stages, 'rank', started);
    ordered := engine.diversify(ranked.candidates, model, k, (legs.knobs ->> 'mmr_lambda')::float8);
    answer := array(select r from unnest(ordered.candidates) as r where r.place <= k and r.cut is null order by r.place);
    stages := engine.stage(stages, 'diversify', started);
    results := engine.read_results(answer, terms, as_of);
    stages := engine.stage(stages, 'read', started);

    trace := engine.search_trace(request, terms, (q).counted, by_chunk, filters, legs, ranked, ordered, stages);
    trace_id := engine.record_retrieval(
        c, purpose, request, profile, legs.mode, legs.reason, ranked.total, vector, results, trace
    );
    return jsonb_build_object(
        'mode', legs.mode, 'degraded_reason', legs.reason, 'results', results, 'trace_id', trace_id,
        'next_cursor', engine.cursor_after(trace_id, trace -> 'candidates', cardinality(answer))
    ) || case
        when request ->> 'why_not' is not null then jsonb_build_object(
            'explain', trace || jsonb_build_object('why_not', engine.why_not(
                c, request, legs.mode, filters, legs.knobs, q, vector, model, k, ordered.candidates
            ))
        )
        when coalesce((request ->> 'explain')::boolean, false) then jsonb_build_object('explain', trace)
        else '{}'
    end;
end
$$;

-- Adds to the times of stages that another one has just ended; in milliseconds of the clock, since the transaction's
-- own time stands still.
create or replace function engine.stage(stages jsonb, name text, started timestamptz)
returns jsonb language plpgsql volatile as $$
begin
    return stages || jsonb_build_object(name, round(
        extract(epoch from clock_timestamp() - started)::numeric * 1000
        - coalesce((select sum(s.value::numeric) from jsonb_each(stages) as s), 0), 2
    ));
end
$$;
