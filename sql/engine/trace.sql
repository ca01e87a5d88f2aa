-- The account of a search, and what it surfaced: appended, never updated, and never a reason for a search to fail.
-- Returns the trace's id; null where it could not be written.
create or replace function engine.record_retrieval(
    c engine.caller, purpose text, request jsonb, profile text, mode text, reason text, candidates int,
    vector @extschema:vector@.halfvec, results jsonb, trace jsonb
)
returns uuid language plpgsql as $$
declare
    trace_id uuid := gen_random_uuid();
begin
    perform set_config('synchronous_commit', 'off', true);
    insert into almagest.retrievals (
        id, org_id, user_id, agent_id, request_id, purpose, profile, mode, degraded_reason, query, query_vector, candidates,
        took_ms, trace
    ) values (
        trace_id, (c).org_id, (c).user_id, (c).agent_id, request ->> 'request_id', purpose, profile, mode, reason,
        left(request ->> 'query', 1000), vector, candidates,
        (select sum(s.value::real) from jsonb_each_text(trace -> 'stages_ms') as s),
        trace || jsonb_build_object('results', (
            select coalesce(jsonb_agg(r -> 'id' order by place), '[]')
            from jsonb_array_elements(results) with ordinality as result (r, place)
        ))
    );
    insert into almagest.activations (org_id, user_id, item_id, retrieval_id, use, rank, profile)
    select (c).org_id, (c).user_id, (r ->> 'id')::uuid, trace_id, 'surfaced', place, profile
    from jsonb_array_elements(results) with ordinality as result (r, place);
    return trace_id;
exception when others then
    raise warning 'retrieval not recorded: %', sqlstate; -- the message may quote content
    return null;
end
$$;

-- What a trace tells of the candidates of a search: first the answer, then the others by score, then those that were
-- cut; 100 at the most. Costs about 9 microseconds a candidate.
create or replace function engine.trace_candidates(candidates engine.candidate[])
returns jsonb language plpgsql immutable parallel safe as $$
begin
    return (
        select coalesce(jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
            'item', r.item_id, 'chunk', r.chunk_id, 'keyword', round(r.keyword::numeric, 4),
            'matched', round(r.matched::numeric, 4), 'vector', round(r.vector::numeric, 4),
            'metadata', round(r.metadata::numeric, 4),
            'boosts', nullif(r.boosts, '{}'), 'hybrid', round(r.hybrid::numeric, 4), 'relevance', r.relevance,
            'strength', round(r.strength::numeric, 4), 'final', round(r.final::numeric, 4), 'cut', r.cut,
            'rank', case when r.cut is null then r.rank end
        )) order by r.place), '[]')
        from unnest(candidates) as r
        where r.place <= 100
    );
end
$$;

-- Takes out of the traces that showed an item what was asked, since that may repeat what the item said, and returns how
-- many there were. That they showed it, and how high, stays.
create or replace function engine.redact_traces(item uuid)
returns int language plpgsql as $$
declare
    trace_ids uuid[];
begin
    -- locked in one order, so that two erasures wait for each other
    select coalesce(array_agg(r.id), '{}') into trace_ids
    from (
        select r.id from almagest.retrievals as r
        where r.id in (select a.retrieval_id from almagest.activations as a where a.item_id = redact_traces.item)
        order by r.id
        for update
    ) as r;
    update almagest.retrievals as r
    set query = null, query_vector = null, trace = r.trace - '{filters,terms}'::text[]
    where r.id = any(trace_ids);
    return cardinality(trace_ids);
end
$$;

-- That a caller has read an item whole; like a trace, never a reason for the reading to fail.
create or replace function engine.record_opening(c engine.caller, item uuid)
returns void language plpgsql as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    insert into almagest.activations (org_id, user_id, item_id, use) values ((c).org_id, (c).user_id, item, 'opened');
exception when others then
    raise warning 'opening not recorded: %', sqlstate;
end
$$;

-- That something happened to an item. name is the item's title at that time; detail never holds content.
create or replace function engine.audit(c engine.caller, i almagest.items, action text, detail jsonb default '{}')
returns void language sql as $$
    insert into almagest.audit_log (
        org_id, user_id, item_id, name, action, version, actor_user_id, actor_agent_id, actor_key_id, detail
    ) values (
        (i).org_id, (i).user_id, (i).id, (i).title, action, (i).version,
        (c).user_id, (c).agent_id, (c).key_id, detail
    )
$$;
