-- Brings an archived item back into everyday search.
--   request  {id, idempotency}
--   returns  {id, state, version}; an item that is already so stays as it is
--   errors   404 not_found, 409 wrong_state, 403 forbidden (canon is for owners and admins)
create or replace function api.restore_item(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
begin
    return engine.move_item(engine.enter(caller), request, 'active');
end
$$;
