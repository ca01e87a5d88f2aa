-- Writes up to 500 memories in one transaction. One bad memory spoils only itself, unless the write is atomic.
--   request  {memories: [{content, content_hash, chunks: [{position, start, end, text, heading_path, embedding}],
--            title, type, importance, tags, origin, source_ref, conversation: {id, position}, occurred_at, private,
--            project, client, deal, agent_name, metadata}], model, atomic, idempotency: {key, request_hash}}
--   returns  {results: [{id, version, index_status, deduplicated} | {problem: {status, code, detail}}], replayed}
--   errors   409 idempotency_conflict; atomic: 422 unknown_type, unknown_project, unknown_client, unknown_deal,
--            deal_of_another_client, cannot_be_private, invalid_vector
-- PostgREST sets the statement timeout for the whole transaction: a million characters take longer than a project's
-- usual 8 s.
create or replace function api.write_memories(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' set statement_timeout = '25s' as $$
declare
    c engine.caller := engine.enter(caller);
    answer jsonb := engine.recall_answer(c, request);
    results jsonb[] := array_fill(null::jsonb, array[jsonb_array_length(request -> 'memories')]);
    memory record;
    sqlstate_raised text;
    detail_raised text;
    title_raised text;
begin
    if answer is not null then
        return answer || '{"replayed": true}';
    end if;
    if request ->> 'model' is not null then
        perform engine.register_model(request ->> 'model');
    end if;
    -- in the order of what tells them apart, so that two batches with the same texts wait for each other and do not
    -- deadlock
    for memory in
        select m.value as body, m.ordinality as place
        from jsonb_array_elements(request -> 'memories') with ordinality as m
        order by
            m.value ->> 'content_hash', m.value ->> 'source_ref', m.value -> 'conversation' ->> 'id',
            m.value -> 'conversation' ->> 'position', m.value ->> 'private', m.value ->> 'project', m.value ->> 'deal',
            m.value ->> 'client', m.ordinality
    loop
        begin
            results[memory.place] := engine.write_memory(c, memory.body, request ->> 'model');
        exception when sqlstate 'PT422' then
            if (request ->> 'atomic')::boolean then
                raise;
            end if;
            get stacked diagnostics
                sqlstate_raised = returned_sqlstate, title_raised = message_text, detail_raised = pg_exception_detail;
            results[memory.place] := jsonb_build_object('problem', detail_raised::jsonb || jsonb_build_object(
                'status', substr(sqlstate_raised, 3)::int, 'detail', title_raised
            ));
        end;
    end loop;
    return engine.remember_answer(c, request, jsonb_build_object('results', to_jsonb(results), 'replayed', false));
end
$$;
