-- What credentials use: how many requests of a day, reported by the containers that let them through.

-- How long counts are kept, in days; for whoever wants to see what a key is used for.
create or replace function engine.usage_days()
returns int language sql immutable parallel safe as $$ select 30 $$;

-- The day that quotas are counted by.
create or replace function engine.usage_day()
returns date language sql stable parallel safe as $$ select (now() at time zone 'utc')::date $$;

-- What all containers together have let through of a principal (a key, or a user) on a day.
create or replace function engine.used(org uuid, principal uuid, day date)
returns bigint language plpgsql stable as $$
begin
    return (
        select coalesce(sum(u.requests), 0)
        from almagest.usage as u
        where u.org_id = org and u.day = used.day and u.principal = used.principal
    );
end
$$;

-- Keeps what one container has let through, and tells what all have on the day that it reports: {used_today, sources},
-- the last being how many containers have counted.
--   report  {source: the container's id of this count, day: its UTC day, requests: of this day so far} or null
-- A count only grows, so a report that comes twice, or after a later one, changes nothing; one that is lost is made
-- good by the next. A day that is neither yesterday, today nor tomorrow is a wrong clock's: nothing is kept of it.
create or replace function engine.count_usage(org uuid, principal uuid, report jsonb)
returns jsonb language plpgsql as $$
declare
    today date := engine.usage_day();
    counted date := coalesce((report ->> 'day')::date, today);
    is_first boolean;
begin
    if report ->> 'source' is null or abs(counted - today) > 1 then
        counted := today;
    else
        -- What a crash of the database would lose of it, the next report brings again.
        perform set_config('synchronous_commit', 'off', true);
        insert into almagest.usage as u (org_id, day, principal, source, requests)
        values (org, counted, principal, (report ->> 'source')::uuid, (report ->> 'requests')::bigint)
        on conflict on constraint usage_pkey do update set requests = excluded.requests
        where u.requests < excluded.requests
        returning u.xmax = 0 into is_first;
    end if;
    if is_first then
        perform engine.forget_usage(org, today);
    end if;
    return (
        select jsonb_build_object('used_today', coalesce(sum(u.requests), 0), 'sources', count(*))
        from almagest.usage as u
        where u.org_id = org and u.day = counted and u.principal = count_usage.principal
    );
end
$$;

-- Takes away old counts of an org, a part at a time; whoever counts for the first time on a day does it.
create or replace function engine.forget_usage(org uuid, today date)
returns void language plpgsql as $$
begin
    delete from almagest.usage as u
    using (
        select o.org_id, o.day, o.principal, o.source from almagest.usage as o
        where o.org_id = org and o.day < today - engine.usage_days()
        limit 500
        for update skip locked
    ) as old
    where u.org_id = old.org_id and u.day = old.day and u.principal = old.principal and u.source = old.source;
end
$$;

-- The limits of a key as a request names them; 422 invalid_limits.
create or replace function engine.demand_limits(request jsonb)
returns void language plpgsql as $$
begin
    if not coalesce((request ->> 'rate')::float8 > 0 and (request ->> 'rate')::float8 <= 10000, true)
        or not coalesce((request ->> 'daily_quota')::numeric between 1 and 2147483647, true)
    then
        perform engine.problem(
            422, 'invalid_limits',
            'A rate is above 0 and at most 10000 requests a second, a daily quota a whole number from 1 to 2147483647.'
        );
    end if;
end
$$;

-- A key of the org by its id or its prefix, locked; 404 unknown_key.
create or replace function engine.lock_key(org uuid, name text)
returns almagest.api_keys language plpgsql as $$
declare
    k almagest.api_keys;
begin
    select * into k from almagest.api_keys as a
    where a.org_id = org and lock_key.name in (a.id::text, a.prefix)
    for no key update;
    if k.id is null then
        perform engine.problem(404, 'unknown_key', 'There is no such key.');
    end if;
    return k;
end
$$;

-- What is told of a key that was just made or changed.
create or replace function engine.key_record(k almagest.api_keys)
returns jsonb language plpgsql stable as $$
begin
    return jsonb_build_object(
        'id', k.id, 'name', k.name, 'prefix', k.prefix, 'user', k.user_id, 'agent', k.agent_id, 'role', k.role,
        'expires_at', k.expires_at, 'rate', k.rate, 'daily_quota', k.daily_quota
    );
end
$$;
