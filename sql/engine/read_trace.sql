-- The account of a retrieval, for whoever asked; read like all that leaves the database (see read.sql).
set role almagest_reader;

-- One trace with the titles of its items; null where it is not the caller's own. An item that the caller may not see
-- any more is left out of it, and counted as hidden.
create or replace function engine.read_trace(c engine.caller, retrieval uuid)
returns jsonb language sql stable security definer set search_path = '' as $$
    with own as (
        select r.*
        from almagest.retrievals as r
        where r.id = retrieval and r.org_id = (c).org_id
            and r.user_id is not distinct from (c).user_id and r.agent_id is not distinct from (c).agent_id
    ),
    -- wherever it names items: by their ids, or in objects with what was said of them
    entries as (
        select
            l.list, e.place,
            case jsonb_typeof(e.entry) when 'object' then e.entry ->> 'item' else e.entry #>> '{}' end::uuid as item_id,
            case jsonb_typeof(e.entry) when 'object' then e.entry else '{}' end as entry
        from own
        cross join unnest('{candidates,mmr,results}'::text[]) as l (list)
        cross join jsonb_array_elements(
            case jsonb_typeof(own.trace -> l.list) when 'array' then own.trace -> l.list else '[]' end
        ) with ordinality as e (entry, place)
    ),
    seen as (
        select e.list, e.place, e.item_id, e.entry || jsonb_build_object('item', i.id, 'title', i.title) as entry
        from entries as e
        join almagest.items as i on i.id = e.item_id
        where engine.readable(c, i)
    )
    select (own.trace - '{candidates,mmr,results}'::text[])
        || '{"candidates": [], "mmr": [], "results": []}'::jsonb
        || case jsonb_typeof(own.trace -> 'terms') when 'array' then '{}' else '{"terms": []}' end::jsonb
        || (
            select coalesce(jsonb_object_agg(lists.list, lists.entries), '{}')
            from (select s.list, jsonb_agg(s.entry order by s.place) as entries from seen as s group by s.list) as lists
        )
        || jsonb_build_object(
            'id', own.id, 'created_at', engine.utc(own.created_at), 'request_id', own.request_id,
            'purpose', own.purpose, 'profile', own.profile, 'mode', own.mode, 'degraded_reason', own.degraded_reason,
            'query', own.query, 'found', own.candidates,
            'hidden', (
                select count(distinct e.item_id) from entries as e where e.item_id not in (select s.item_id from seen as s)
            )
        )
    from own
$$;

reset role;
