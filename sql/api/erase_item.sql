-- Erases what an item said, everywhere, in one transaction; the audit skeleton stays.
--   request  {id, strict, idempotency}; strict drops the item's name too
--   returns  {id, state: 'erased', erased: {chunks, embeddings, versions, tags, pins, facts, traces}}
--   errors   404 not_found, 403 forbidden
create or replace function api.erase_item(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    c engine.caller := engine.enter(caller);
    answer jsonb := engine.recall_answer(c, request);
begin
    if answer is not null then
        return answer;
    end if;
    return engine.remember_answer(c, request, jsonb_build_object(
        'id', request ->> 'id', 'state', 'erased',
        'erased', engine.erase_item(
            c, (request ->> 'id')::uuid, coalesce((request ->> 'strict')::boolean, false)
        )
    ));
end
$$;
