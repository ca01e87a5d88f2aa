-- Registers an API key of a member, of an agent, or of an agent that works for a member. The key itself never comes
-- here.
--   request  {org, name, key_hash: SHA-256 hex, prefix, member, agent, expires_at, rate: requests a second, null for
--            the default, daily_quota: requests a UTC day, null for none}
--   returns  {id, name, prefix, user, agent, role, expires_at, rate, daily_quota}; role is the member's, or agent
--   errors   403 forbidden (also for a key of another person), 404 unknown_member, unknown_agent, 422 key_of_nobody,
--            422 expired, 422 invalid_limits
create or replace function api.create_key(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
    member uuid := engine.member_id(org, request ->> 'member');
    agent uuid := engine.agent_id(org, request ->> 'agent');
    k almagest.api_keys;
begin
    if num_nonnulls(member, agent) = 0 then
        perform engine.problem(422, 'key_of_nobody', 'A key belongs to a member, to an agent, or to both.');
    end if;
    perform engine.demand_own_key(caller, member);
    perform engine.demand_limits(request);
    if (request ->> 'expires_at')::timestamptz <= now() then
        perform engine.problem(422, 'expired', 'The key would have expired already.');
    end if;
    insert into almagest.api_keys (
        org_id, user_id, agent_id, role, name, prefix, key_hash, expires_at, rate, daily_quota
    ) values (
        org, member, agent,
        case when agent is not null then 'agent' else (
            select m.role from almagest.members as m where m.org_id = org and m.user_id = member
        ) end,
        request ->> 'name', request ->> 'prefix', request ->> 'key_hash', (request ->> 'expires_at')::timestamptz,
        (request ->> 'rate')::float8, (request ->> 'daily_quota')::int
    ) returning * into k;
    return engine.key_record(k);
end
$$;
