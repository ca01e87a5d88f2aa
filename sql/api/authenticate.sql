-- Turns a credential that the edge has checked into a caller, and keeps what the container has counted of its requests.
-- Called with caller null.
--   request  {key_hash: SHA-256 of an API key, hex} or {user_id: of a verified JWT, org: id or slug or null}; usage:
--            {source: uuid of the container's count, day: its UTC day, requests: let through on it} or null
--   returns  {org, user, agent, role, key, expires_at, rate, daily_quota, used_today: requests of all containers on the
--            day of the report, sources: how many containers that were}; expires_at, rate and daily_quota of the key
--   errors   401 unauthorized: no such key, revoked, expired, or not a member; all alike
-- That a key was used is noted once a minute at the most, by whoever comes first, so that a busy key is no hot row.
create or replace function api.authenticate(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    k almagest.api_keys;
    m almagest.members;
    wanted text := request ->> 'org';
begin
    perform engine.note_request();
    if request ->> 'key_hash' is not null then
        select * into k from almagest.api_keys as a
        where a.key_hash = request ->> 'key_hash' and a.revoked_at is null
            and (a.expires_at is null or a.expires_at > now());
        if k.id is not null then
            update almagest.api_keys as a set last_used_at = now()
            where a.id in (
                select b.id from almagest.api_keys as b
                where b.id = k.id and (b.last_used_at is null or b.last_used_at < now() - interval '1 minute')
                for no key update skip locked
            );
            return jsonb_build_object(
                'org', k.org_id, 'user', k.user_id, 'agent', k.agent_id, 'role', k.role, 'key', k.id,
                'expires_at', k.expires_at, 'rate', k.rate, 'daily_quota', k.daily_quota
            ) || engine.count_usage(k.org_id, coalesce(k.counted_as, k.id), request -> 'usage');
        end if;
    elsif request ->> 'user_id' is not null then
        select mb.* into m
        from almagest.members as mb
        join almagest.orgs as o on o.id = mb.org_id
        where mb.user_id = (request ->> 'user_id')::uuid and not o.is_system
            and (wanted is null or wanted in (o.id::text, o.slug))
        order by mb.created_at, mb.org_id
        limit 1;
        if m.org_id is not null then
            return jsonb_build_object('org', m.org_id, 'user', m.user_id, 'role', m.role)
                || engine.count_usage(m.org_id, m.user_id, request -> 'usage');
        end if;
    end if;
    perform engine.problem(401, 'unauthorized', 'The credential is missing, wrong, expired or revoked.');
    return null;
end
$$;
