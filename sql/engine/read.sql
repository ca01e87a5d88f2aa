-- What leaves the database about items is read here, by almagest_reader, under row level security, for the caller that
-- engine.enter has set. The engine hands over ids; rows that the policies hide do not come back.
set role almagest_reader;

-- A time as JSON has it: ISO 8601 in UTC.
create or replace function engine.utc(at timestamptz)
returns text language sql immutable parallel safe as $$
    select to_char(at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;

-- What every answer about an item says of it, for those of the given items that the caller may see.
create or replace function engine.item_summaries(ids uuid[])
returns table (item_id uuid, summary jsonb) language sql stable as $$
    select i.id, jsonb_build_object(
        'id', i.id, 'kind', i.kind, 'type', i.type, 'title', i.title, 'source_ref', i.source_ref,
        'metadata', i.metadata, 'tags', coalesce(tagged.tags, '[]'), 'agent_name', i.agent_name,
        'conversation', case when i.conversation_id is not null then
            jsonb_build_object('id', i.conversation_id, 'position', i.conversation_position)
        end,
        'created_at', engine.utc(i.created_at)
    )
    from almagest.items as i
    left join lateral (
        select jsonb_agg(distinct t.tag order by t.tag) as tags from almagest.item_tags as t where t.item_id = i.id
    ) as tagged on true
    where i.id = any(ids)
$$;

-- ranked: [{item_id, chunk_id, hybrid, vector, keyword, metadata, strength, final}], best first.
-- Returns the results of a search in that order, each with a snippet of at most 400 characters.
create or replace function engine.read_results(ranked jsonb, knobs jsonb)
returns jsonb language sql stable security definer set search_path = '' as $$
    select coalesce(jsonb_agg(
        i.summary || jsonb_build_object(
            'snippet', left(k.text, 400),
            'relevance', engine.relevance_class(r.hybrid, knobs),
            'scores', jsonb_build_object(
                'hybrid', round(r.hybrid::numeric, 4), 'vector', round(r.vector::numeric, 4),
                'keyword', round(r.keyword::numeric, 4), 'metadata', round(r.metadata::numeric, 4),
                'strength', round(r.strength::numeric, 4), 'final', round(r.final::numeric, 4)
            )
        ) order by r.place
    ), '[]')
    from jsonb_to_recordset(ranked) as r (
        place int, item_id uuid, chunk_id bigint, hybrid float8, vector float8, keyword float8, metadata float8,
        strength float8, final float8
    )
    join engine.item_summaries(array(
        select (ids ->> 'item_id')::uuid from jsonb_array_elements(ranked) as ids
    )) as i on i.item_id = r.item_id
    join almagest.chunks as k on k.id = r.chunk_id
$$;

-- One item, whole; null where there is none that the caller may see. Provisional items are for those who review them.
create or replace function engine.read_item(item uuid)
returns jsonb language sql stable security definer set search_path = '' as $$
    select s.summary || jsonb_build_object(
        'summary', i.summary, 'content', i.content, 'origin', i.origin, 'scope', i.scope, 'state', i.state,
        'private', i.user_id is not null, 'importance', i.priority, 'tier', i.tier, 'evergreen', i.evergreen,
        'version', i.version, 'index_status', i.index_status, 'index_error', i.index_error,
        'updated_at', engine.utc(i.updated_at), 'occurred_at', engine.utc(i.occurred_at)
    )
    from almagest.items as i
    join engine.item_summaries(array[item]) as s on s.item_id = i.id
    where (i.state <> 'provisional' or (engine.current_caller()).manages)
$$;

-- A page of an item's chunks in order, after a position.
create or replace function engine.read_chunks(item uuid, after int, page int)
returns jsonb language sql stable security definer set search_path = '' as $$
    select coalesce(jsonb_agg(jsonb_build_object(
        'position', k.position, 'start', k.start_offset, 'end', k.end_offset, 'text', k.text
    ) order by k.position), '[]')
    from (
        select k.* from almagest.chunks as k
        where k.item_id = item and k.position > after
        order by k.position limit page
    ) as k
$$;

-- Canon: pinned items first, a person's own before the shared ones in the same place, then workspace items; whole.
create or replace function engine.read_canon()
returns jsonb language sql stable security definer set search_path = '' as $$
    select coalesce(jsonb_agg(jsonb_build_object(
        'id', i.id, 'kind', i.kind, 'type', i.type, 'title', i.title, 'content', coalesce(i.plain_text, i.content),
        'pinned', canon.position is not null, 'private', i.user_id is not null
    ) order by canon.position nulls last, canon.shared, i.created_at, i.id), '[]')
    from almagest.items as i
    left join lateral (
        select p.position, p.user_id is null as shared from almagest.pins as p where p.item_id = i.id
        order by p.position, shared limit 1
    ) as canon on true
    where i.state = 'active' and (canon.position is not null or i.scope = 'workspace')
$$;

-- The table of contents: how much there is of each type, and the titles of what was assigned to the agent or is newest.
create or replace function engine.read_contents(titles int)
returns jsonb language sql stable security definer set search_path = '' as $$
    select jsonb_build_object(
        'types', (
            select coalesce(jsonb_agg(jsonb_build_object('type', by_type.type, 'count', by_type.n) order by n desc, type), '[]')
            from (select i.type, count(*) as n from almagest.items as i where i.state = 'active' group by i.type) as by_type
        ),
        'items', (
            select coalesce(jsonb_agg(jsonb_build_object(
                'id', i.id, 'kind', i.kind, 'type', i.type, 'scope', i.scope,
                'title', coalesce(i.title, left(regexp_replace(i.content, '\s+', ' ', 'g'), 80))
            ) order by i.scope = 'agent' desc, i.updated_at desc, i.id), '[]')
            from (
                select i.* from almagest.items as i where i.state = 'active'
                order by i.scope = 'agent' desc, i.updated_at desc, i.id limit titles
            ) as i
        )
    )
$$;

reset role;
