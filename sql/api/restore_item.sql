-- Brings an archived item back into everyday search.
--   request  {id, idempotency}
--   returns  {id, state, version}; an item that is already so stays as it is
--   errors   404 not_found, 409 wrong_state, 403 forbidden (canon is for owners and admins)
create or replace function api.restore_item(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    c engine.caller := engine.enter(caller);
    answer jsonb := engine.recall_answer(c, request);
    i almagest.items;
begin
    if answer is not null then
        return answer;
    end if;
    i := engine.lock_item_for_change(c, (request ->> 'id')::uuid);
    if i.state not in ('active', 'archived') then
        perform engine.problem(409, 'wrong_state', format('An item that is %s cannot be restored.', i.state));
    end if;
    if i.state <> 'active' then
        i := engine.set_state(c, i, 'active');
    end if;
    return engine.remember_answer(c, request, jsonb_build_object('id', i.id, 'state', i.state, 'version', i.version));
end
$$;
