-- The health checks' own org: real writes and searches go through it, and nobody else sees it. It is found by its mark
-- and never by its slug, so no request can name it; nobody is its member, and it has no keys.

-- Which slug nobody may take.
create or replace function engine.system_slug()
returns text language sql immutable parallel safe as $$ select 'almagest-health' $$;

-- 409 slug_reserved where an org would take it.
create or replace function engine.demand_free_slug(slug text)
returns void language plpgsql as $$
begin
    if slug = engine.system_slug() then
        perform engine.problem(409, 'slug_reserved', 'This slug is kept for the system itself: choose another one.');
    end if;
end
$$;

-- Who writes and asks in it: an agent of its own, as the API takes a caller. Makes both when they are not there yet.
create or replace function engine.system_caller()
returns jsonb language plpgsql as $$
declare
    org uuid;
    agent uuid;
begin
    loop
        select o.id into org from almagest.orgs as o where o.is_system;
        exit when org is not null;
        insert into almagest.orgs (slug, name, is_system)
        select case when taken then engine.system_slug() || '-' || left(gen_random_uuid()::text, 8) else engine.system_slug() end,
            'Health checks', true
        -- an org that was made before the slug was kept back has it for good
        from (
            select exists (select from almagest.orgs as o where o.slug = engine.system_slug() and not o.is_system) as taken
        ) as slug
        on conflict do nothing;
    end loop;
    loop
        select a.id into agent from almagest.agents as a where a.org_id = org and a.slug = 'health';
        exit when agent is not null;
        insert into almagest.agents (org_id, slug, name) values (org, 'health', 'Health checks') on conflict do nothing;
    end loop;
    -- its traces are of no use once a check has been looked into
    insert into almagest.retention (org_id, trace_days, idempotency_days)
    select org, 7, 1
    where not exists (select from almagest.retention as r where r.org_id = org)
    on conflict do nothing;
    return jsonb_build_object('org', org, 'agent', agent, 'role', 'agent');
end
$$;

-- What has been planted in it, by name of the set: versions, models and what is expected; see engine.note_planted. Null
-- where nothing or something of another shape stands there: it is then planted, and noted, anew.
create or replace function engine.planted(set_name text)
returns jsonb language sql stable as $$
    select p.noted
    from almagest.orgs as o
    cross join lateral (select o.settings -> set_name as noted) as p
    where o.is_system
        and jsonb_typeof(p.noted -> 'version') = 'number' and jsonb_typeof(p.noted -> 'model') = 'string'
        and jsonb_typeof(p.noted -> 'planting') = 'string' and jsonb_typeof(p.noted -> 'similarities') = 'array'
        and not jsonb_path_exists(p.noted, '$.similarities[*] ? (@.type() != "number")')
$$;

-- Notes what was planted.
create or replace function engine.note_planted(set_name text, planted jsonb)
returns void language sql as $$
    update almagest.orgs as o
    set settings = case jsonb_typeof(o.settings) when 'object' then o.settings else '{}' end
        || jsonb_build_object(set_name, planted)
    where o.is_system
$$;

-- Waits until nobody plants a set, and lets nobody plant it until the transaction ends; alone: nor look at it.
create or replace function engine.lock_planted(set_name text, alone boolean)
returns void language plpgsql as $$
declare
    key constant bigint := hashtextextended('almagest.planted.' || set_name, 0);
begin
    if alone then
        perform pg_advisory_xact_lock(key);
    else
        perform pg_advisory_xact_lock_shared(key);
    end if;
end
$$;

-- Its items whose source_ref begins with a prefix.
create or replace function engine.system_items(prefix text)
returns table (id uuid, source_ref text, state text, index_status text) language sql stable as $$
    select i.id, i.source_ref, i.state, i.index_status
    from almagest.items as i
    join almagest.orgs as o on o.id = i.org_id and o.is_system
    where starts_with(i.source_ref, prefix)
$$;

-- Takes its items out altogether, the audit log included: what a check writes for itself leaves nothing. Returns how
-- many.
--   prefix  those whose source_ref begins with it, kept excepted, and which were written before as long as since says
--   item    this one too, whatever its state and age; null for none
-- What was erased names no check any more: it goes once it is older than any check may take, which is ten minutes.
create or replace function engine.clear_system_items(prefix text, kept text, since interval, item uuid)
returns int language plpgsql as $$
declare
    ids uuid[];
begin
    select coalesce(array_agg(i.id), '{}') into ids
    from almagest.items as i
    join almagest.orgs as o on o.id = i.org_id and o.is_system
    where i.id = item or (i.state = 'erased' and i.updated_at <= now() - interval '10 minutes')
        or (
            starts_with(i.source_ref, prefix) and starts_with(i.source_ref, kept) is not true
            and i.created_at <= now() - since
        );
    perform engine.redact_traces(id) from unnest(ids) as id;
    delete from almagest.items as i where i.id = any(ids);
    delete from almagest.audit_log as a where a.item_id = any(ids);
    delete from almagest.activations as a where a.item_id = any(ids);
    return cardinality(ids);
end
$$;
