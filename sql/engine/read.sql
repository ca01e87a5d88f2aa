-- What leaves the database about items is read here, by almagest_reader, under row level security, for the caller that
-- engine.enter has set. The engine hands over ids, or the caller whom its own predicate is to ask for; rows that the
-- policies hide do not come back either way.
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

-- best   the candidates of an answer, which come in the order of their places
-- terms  of the query, to be marked in snippets; null where they are not known any more
-- as_of  null for now; otherwise results tell what the version valid then said
-- Returns the results of a search. A candidate whose text has been replaced since is left out, as is one that the
-- caller may not see any more.
create or replace function engine.read_results(
    best engine.candidate[], terms text[] default null, as_of timestamptz default null
)
returns jsonb language plpgsql stable security definer set search_path = '' as $$
begin
    return coalesce((
        select jsonb_agg(
            i.summary || jsonb_build_object(
                'version', coalesce(v.version, it.version),
                'chunk', jsonb_build_object(
                    'position', k.position, 'start', k.start_offset, 'end', k.end_offset, 'heading_path', k.heading_path
                ),
                'snippet', s.snippet,
                'marks', s.marks,
                'relevance', r.relevance,
                'scores', jsonb_build_object(
                    'hybrid', round(r.hybrid::numeric, 4), 'vector', round(r.vector::numeric, 4),
                    'keyword', round(r.keyword::numeric, 4), 'metadata', round(r.metadata::numeric, 4),
                    'strength', round(r.strength::numeric, 4), 'final', round(r.final::numeric, 4)
                )
            ) || case
                when v.item_id is null then '{}'
                else jsonb_build_object(
                    'type', v.type, 'title', v.title, 'metadata', v.metadata, 'source_ref', v.source_ref,
                    'agent_name', v.agent_name, 'tags', array(select distinct t from unnest(v.tags) as t order by t)
                )
            end
            order by r.place
        )
        from unnest(best) as r
        join almagest.chunks as k on k.id = r.chunk_id
        join almagest.items as it on it.id = k.item_id
        join engine.item_summaries(array(select b.item_id from unnest(best) as b)) as i on i.item_id = k.item_id
        left join almagest.item_versions as v
        on v.item_id = it.id and it.updated_at > as_of and v.valid_from <= as_of and v.valid_to > as_of
        cross join lateral engine.snippet(k.text, terms) as s
        where coalesce(v.version, it.version) between k.since_version and k.version
    ), '[]');
end
$$;

-- Whether the policies let the caller see an item.
create or replace function engine.is_readable(item uuid)
returns boolean language sql stable security definer set search_path = '' as $$
    select exists (select from almagest.items as i where i.id = item)
$$;

-- One item, whole; null where there is none that the caller may see.
create or replace function engine.read_item(c engine.caller, item uuid)
returns jsonb language sql stable security definer set search_path = '' as $$
    select s.summary || jsonb_build_object(
        'summary', i.summary, 'content', i.content, 'origin', i.origin, 'scope', i.scope, 'state', i.state,
        'private', i.user_id is not null, 'importance', i.priority, 'tier', i.tier, 'evergreen', i.evergreen,
        'version', i.version, 'index_status', i.index_status, 'index_error', i.index_error,
        'project', (select p.slug from almagest.projects as p where p.id = i.project_id),
        'client', (select k.slug from almagest.clients as k where k.id = i.client_id),
        'deal', (select d.slug from almagest.deals as d where d.id = i.deal_id),
        'updated_at', engine.utc(i.updated_at), 'occurred_at', engine.utc(i.occurred_at),
        'validated_at', engine.utc(i.validated_at), 'archived_at', engine.utc(i.archived_at)
    )
    from almagest.items as i
    join engine.item_summaries(array[item]) as s on s.item_id = i.id
    where engine.readable(c, i)
$$;

-- A page of an item's chunks in order, after a position.
create or replace function engine.read_chunks(c engine.caller, item uuid, after int, page int)
returns jsonb language sql stable security definer set search_path = '' as $$
    select coalesce(jsonb_agg(jsonb_build_object(
        'position', k.position, 'start', k.start_offset, 'end', k.end_offset, 'heading_path', k.heading_path,
        'text', k.text
    ) order by k.position), '[]')
    from (
        select k.* from almagest.chunks as k
        join almagest.items as i on i.id = k.item_id
        where k.item_id = item and k.version = i.version and k.position > after and engine.readable(c, i)
        order by k.position limit page
    ) as k
$$;

-- The first chunk of what an item says now; 0 where it has none.
create or replace function engine.first_chunk(item uuid, version int)
returns bigint language sql stable as $$
    select coalesce((
        select k.id from almagest.chunks as k
        where k.item_id = first_chunk.item and k.version = first_chunk.version and k.position = 0
    ), 0)
$$;

-- The messages before and after an item in its conversation, whole and in order, as many on each side as reach says:
-- of those that share its scope and its state, as neighbours in search do (see engine.sequence_of), and, where several
-- have one position, in its order. Null where there is no such item that the caller may see; an item outside any
-- conversation has none.
create or replace function engine.read_neighbours(c engine.caller, item uuid, reach int)
returns jsonb language sql stable security definer set search_path = '' as $$
    with centre as materialized (
        select i.*, engine.first_chunk(i.id, i.version) as chunk_id
        from almagest.items as i
        where i.id = item and engine.readable(c, i)
    ),
    beside as (
        select i.id, i.content, n.side, n.distance
        from (
            (
                select 'before' as side, o.id, row_number() over (
                    order by o.conversation_position desc, engine.first_chunk(o.id, o.version) desc
                ) as distance
                from centre as m
                join almagest.items as o on o.org_id = m.org_id and o.conversation_id = m.conversation_id
                    and o.conversation_position <= m.conversation_position and (
                        o.conversation_position < m.conversation_position
                        or engine.first_chunk(o.id, o.version) < m.chunk_id
                    )
                where (o.user_id, o.client_id, o.deal_id, o.agent_ids)
                    is not distinct from (m.user_id, m.client_id, m.deal_id, m.agent_ids)
                    and o.state = m.state and engine.readable(c, o)
                order by o.conversation_position desc, engine.first_chunk(o.id, o.version) desc
                limit reach
            )
            union all
            (
                select 'after', o.id, row_number() over (
                    order by o.conversation_position, engine.first_chunk(o.id, o.version)
                )
                from centre as m
                join almagest.items as o on o.org_id = m.org_id and o.conversation_id = m.conversation_id
                    and o.conversation_position >= m.conversation_position and (
                        o.conversation_position > m.conversation_position
                        or engine.first_chunk(o.id, o.version) > m.chunk_id
                    )
                where (o.user_id, o.client_id, o.deal_id, o.agent_ids)
                    is not distinct from (m.user_id, m.client_id, m.deal_id, m.agent_ids)
                    and o.state = m.state and engine.readable(c, o)
                order by o.conversation_position, engine.first_chunk(o.id, o.version)
                limit reach
            )
        ) as n
        join almagest.items as i on i.id = n.id
    ),
    told as (
        select b.side, b.distance, s.summary || jsonb_build_object('content', b.content) as message
        from beside as b
        join engine.item_summaries(array(select n.id from beside as n)) as s on s.item_id = b.id
    )
    select jsonb_build_object(
        'before', coalesce((
            select jsonb_agg(t.message order by t.distance desc) from told as t where t.side = 'before'
        ), '[]'),
        'after', coalesce((
            select jsonb_agg(t.message order by t.distance) from told as t where t.side = 'after'
        ), '[]')
    )
    from centre
$$;

-- Canon: pinned items first, a person's own before the shared ones in the same place, then workspace items; whole.
create or replace function engine.read_canon(c engine.caller)
returns jsonb language sql stable security definer set search_path = '' as $$
    with places as (
        select p.item_id, p.position, p.user_id is null as shared from almagest.pins as p
        union all
        select w.id, null, true from almagest.items as w where w.org_id = (c).org_id and w.scope = 'workspace'
    ),
    canon as (
        select distinct on (p.item_id) p.* from places as p order by p.item_id, p.position nulls last, p.shared
    )
    select coalesce(jsonb_agg(jsonb_build_object(
        'id', i.id, 'kind', i.kind, 'type', i.type, 'title', i.title, 'content', coalesce(i.plain_text, i.content),
        'pinned', canon.position is not null, 'private', i.user_id is not null
    ) order by canon.position nulls last, canon.shared, i.created_at, i.id), '[]')
    from canon
    join almagest.items as i on i.id = canon.item_id
    where i.state = 'active' and engine.readable(c, i)
$$;

-- The table of contents: how much there is of each type, and the titles of what was assigned to the agent or is newest.
create or replace function engine.read_contents(c engine.caller, titles int)
returns jsonb language sql stable security definer set search_path = '' as $$
    select jsonb_build_object(
        'types', (
            select coalesce(
                jsonb_agg(jsonb_build_object('type', counted.type, 'count', counted.n) order by counted.n desc, counted.type),
                '[]'
            )
            from (
                select i.type, count(*) as n from almagest.items as i
                where i.state = 'active' and engine.readable(c, i)
                group by i.type
            ) as counted
        ),
        'items', (
            select coalesce(jsonb_agg(jsonb_build_object(
                'id', i.id, 'kind', i.kind, 'type', i.type, 'scope', i.scope,
                'title', coalesce(i.title, left(regexp_replace(left(i.content, 400), '\s+', ' ', 'g'), 80))
            ) order by i.assigned desc, i.updated_at desc, i.id), '[]')
            from (
                -- apart, so that each comes from its index in order
                select newest.* from (
                    (
                        select true as assigned, i.* from almagest.items as i
                        where i.org_id = (c).org_id and i.scope = 'agent' and i.state = 'active' and engine.readable(c, i)
                        order by i.updated_at desc, i.id
                        limit titles
                    )
                    union all
                    (
                        select false as assigned, i.* from almagest.items as i
                        where i.org_id = (c).org_id and i.scope <> 'agent' and i.state = 'active' and engine.readable(c, i)
                        order by i.updated_at desc, i.id
                        limit titles
                    )
                ) as newest
                order by newest.assigned desc, newest.updated_at desc, newest.id
                limit titles
            ) as i
        )
    )
$$;

-- How far indexing is, of what the caller may see.
create or replace function engine.read_index_status(c engine.caller)
returns jsonb language sql stable security definer set search_path = '' as $$
    select jsonb_build_object(
        'pending', count(*) filter (where i.index_status in ('pending', 'text_ready')),
        'indexing', count(*) filter (where i.index_status = 'indexing'),
        'failed', count(*) filter (where i.index_status = 'failed')
    )
    from almagest.items as i
    where i.index_status <> 'search_ready' and engine.readable(c, i)
$$;

reset role;
