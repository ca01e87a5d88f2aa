-- Ends a key for good; containers that have just seen it may let it through for 30 seconds more.
--   request  {org, id: the key's id or prefix}
--   returns  {id, revoked_at}
--   errors   403 forbidden, 404 unknown_key
create or replace function api.revoke_key(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
    k almagest.api_keys := engine.lock_key(org, request ->> 'id');
begin
    update almagest.api_keys as a set revoked_at = coalesce(a.revoked_at, now())
    where a.id = k.id
    returning * into k;
    return jsonb_build_object('id', k.id, 'revoked_at', k.revoked_at);
end
$$;
