-- The account of a search, and what it surfaced: appended, never updated, and never a reason for a search to fail.
-- Returns the trace's id; null where it could not be written.
create or replace function engine.record_retrieval(
    c engine.caller, purpose text, request jsonb, profile text, mode text, reason text, candidates int,
    results jsonb, trace jsonb
)
returns uuid language plpgsql as $$
declare
    trace_id uuid := gen_random_uuid();
begin
    perform set_config('synchronous_commit', 'off', true);
    insert into almagest.retrievals (
        id, org_id, user_id, agent_id, request_id, purpose, profile, mode, degraded_reason, query, candidates, trace
    ) values (
        trace_id, (c).org_id, (c).user_id, (c).agent_id, request ->> 'request_id', purpose, profile, mode, reason,
        left(request ->> 'query', 1000), candidates,
        trace || jsonb_build_object('results', (
            select coalesce(jsonb_agg(r -> 'id' order by place), '[]')
            from jsonb_array_elements(results) with ordinality as result (r, place)
        ))
    );
    insert into almagest.activations (org_id, user_id, item_id, retrieval_id, use, rank, profile, query_vector)
    select
        (c).org_id, (c).user_id, (r ->> 'id')::uuid, trace_id, 'surfaced', place, profile,
        engine.parse_vector(request ->> 'embedding')
    from jsonb_array_elements(results) with ordinality as result (r, place);
    return trace_id;
exception when others then
    raise warning 'retrieval not recorded: %', sqlerrm;
    return null;
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
