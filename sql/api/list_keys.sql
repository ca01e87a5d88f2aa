-- The API keys of an org, without their hashes.
--   request  {org}
--   returns  {keys: [{id, name, prefix, user, agent, role, created_at, expires_at, revoked_at, last_used_at, rate,
--            daily_quota, used_today: requests of this UTC day as far as they are reported, replaced_by: a key's id}]}
--   errors   403 forbidden, 404 unknown_org
create or replace function api.list_keys(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
begin
    return jsonb_build_object('keys', (
        select coalesce(jsonb_agg(jsonb_build_object(
            'id', k.id, 'name', k.name, 'prefix', k.prefix, 'user', coalesce(m.email, k.user_id::text), 'agent', a.slug,
            'role', k.role, 'created_at', k.created_at, 'expires_at', k.expires_at, 'revoked_at', k.revoked_at,
            'last_used_at', k.last_used_at, 'rate', k.rate, 'daily_quota', k.daily_quota,
            'used_today', engine.used(org, coalesce(k.counted_as, k.id), engine.usage_day()),
            'replaced_by', k.replaced_by
        ) order by k.created_at, k.id), '[]')
        from almagest.api_keys as k
        left join almagest.members as m on m.org_id = k.org_id and m.user_id = k.user_id
        left join almagest.agents as a on a.id = k.agent_id
        where k.org_id = org
    ));
end
$$;
