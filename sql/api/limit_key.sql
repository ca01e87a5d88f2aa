-- Gives a key other limits. Containers that know the key use the old ones for 30 seconds more.
--   request  {org, id: the key's id or prefix, rate: requests a second, daily_quota: requests a UTC day}; what is left
--            out stays, null goes back to the default rate, and to no quota
--   returns  {id, name, prefix, user, agent, role, expires_at, rate, daily_quota}
--   errors   403 forbidden, 404 unknown_key, 422 invalid_limits
create or replace function api.limit_key(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
    k almagest.api_keys := engine.lock_key(org, request ->> 'id');
begin
    perform engine.demand_limits(request);
    update almagest.api_keys as a set
        rate = case when request ? 'rate' then (request ->> 'rate')::float8 else a.rate end,
        daily_quota = case when request ? 'daily_quota' then (request ->> 'daily_quota')::int else a.daily_quota end
    where a.id = k.id
    returning * into k;
    return engine.key_record(k);
end
$$;
