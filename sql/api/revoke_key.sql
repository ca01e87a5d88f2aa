-- Ends a key for good; containers that have just seen it may let it through for 30 seconds more.
--   request  {org, id: the key's id or prefix}
--   returns  {id, revoked_at}
--   errors   403 forbidden, 404 unknown_key
create or replace function api.revoke_key(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
    k almagest.api_keys;
begin
    update almagest.api_keys as a set revoked_at = coalesce(a.revoked_at, now())
    where a.org_id = org and request ->> 'id' in (a.id::text, a.prefix)
    returning * into k;
    if k.id is null then
        perform engine.problem(404, 'unknown_key', 'There is no such key.');
    end if;
    return jsonb_build_object('id', k.id, 'revoked_at', k.revoked_at);
end
$$;
