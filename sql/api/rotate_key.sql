-- Registers a new key in place of another: the same owner, role, name and limits, and what the old one has used of its
-- quota is used. Both hold until the overlap is over.
--   request  {org, id: the old key's id or prefix, key_hash: SHA-256 hex of the new one, prefix, overlap_seconds: 0 to
--            2592000 (30 days), expires_at: of the new one; left out, it lives as long as the old one was made to}
--   returns  {id, name, prefix, user, agent, role, expires_at, rate, daily_quota, replaces: {id, expires_at}}
--   errors   403 forbidden (also for a key of another person), 404 unknown_key, 409 key_ended, 409 key_replaced,
--            422 expired, 422 invalid_overlap
create or replace function api.rotate_key(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
    old almagest.api_keys := engine.lock_key(org, request ->> 'id');
    k almagest.api_keys;
    overlap float8 := (request ->> 'overlap_seconds')::float8;
    expires_at timestamptz := coalesce(
        (request ->> 'expires_at')::timestamptz, now() + (old.expires_at - old.created_at)
    );
begin
    perform engine.demand_own_key(caller, old.user_id);
    if overlap is null or overlap not between 0 and 2592000 then
        perform engine.problem(422, 'invalid_overlap', 'An overlap lasts from 0 seconds to 30 days.');
    end if;
    if old.replaced_by is not null then
        perform engine.problem(409, 'key_replaced', 'This key was rotated already; rotate its successor.');
    end if;
    if old.revoked_at is not null or old.expires_at <= now() then
        perform engine.problem(409, 'key_ended', 'This key has ended; make a new one.');
    end if;
    if expires_at <= now() then
        perform engine.problem(422, 'expired', 'The key would have expired already.');
    end if;
    insert into almagest.api_keys (
        org_id, user_id, agent_id, role, name, prefix, key_hash, expires_at, rate, daily_quota, counted_as
    ) values (
        org, old.user_id, old.agent_id, old.role, old.name, request ->> 'prefix', request ->> 'key_hash', expires_at,
        old.rate, old.daily_quota, coalesce(old.counted_as, old.id)
    ) returning * into k;
    update almagest.api_keys as a
    set replaced_by = k.id, expires_at = least(a.expires_at, now() + make_interval(secs => overlap))
    where a.id = old.id
    returning * into old;
    return engine.key_record(k) || jsonb_build_object(
        'replaces', jsonb_build_object('id', old.id, 'expires_at', old.expires_at)
    );
end
$$;
