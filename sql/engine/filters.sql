-- Filters: which items, and which of their chunks, a search may answer with. Conditions that are absent let everything
-- through, all that are given must hold, and within a list any value may. An empty list lets nothing through.
--   kind, type, origin, tier, agent_name, source_ref, conversation    is one of these
--   project, client, deal   is of one of these, by slug; agent: is assigned to one of these agents, by slug
--   tags, tags_any          has all of these; has one of these
--   folder, folder_tree     lies in one of these folders, by id; lies in one of them or below
--   mime_type, extension    of its file, whatever the case
--   title                   contains this, whatever the case
--   metadata                contains this JSON (@>)
--   priority_min, priority_max
--   created_after, created_before, updated_…, occurred_…              from a time on, and before a time
--   any                     a list of such objects (without any), of which one must hold

-- The filters of a request without those that are null.
create or replace function engine.given_filters(filters jsonb)
returns jsonb language plpgsql immutable parallel safe as $$
declare
    given jsonb := coalesce((
        select jsonb_object_agg(f.key, f.value)
        from jsonb_each(coalesce(nullif(filters, 'null'), '{}')) as f
        where f.value <> 'null'
    ), '{}');
begin
    if given ? 'any' then
        given := jsonb_set(given, '{any}', coalesce((
            select jsonb_agg(engine.given_filters(a.one) order by a.place)
            from jsonb_array_elements(given -> 'any') with ordinality as a (one, place)
        ), '[]'));
    end if;
    return given;
end
$$;

-- The states that a search asks for, at the time that it asks for.
--   asked  its request, or the trace of it: include_archived
create or replace function engine.asked_states(asked jsonb)
returns text[] language plpgsql immutable parallel safe as $$
begin
    return case when (asked ->> 'include_archived')::boolean then '{active,archived}' else '{active}' end;
end
$$;

-- A JSON string, or an array of them, as an array. (Immutable, so that the planner knows what it plans for.)
create or replace function engine.text_list(wanted jsonb)
returns text[] language plpgsql immutable parallel safe as $$
begin
    return case jsonb_typeof(wanted)
        when 'array' then array(select distinct jsonb_array_elements_text(wanted))
        else array[wanted #>> '{}']
    end;
end
$$;

-- One condition as SQL over almagest.items as i, for execute … using c, states, filters, as_of; null for a name that is
-- none. Values stay parameters: only names and places of this file become SQL text.
--   source   the JSON object that holds the value
--   past     whether almagest.item_versions as v holds what the item said at the time asked for, if it was edited since
create or replace function engine.filter_condition(name text, source text, past boolean)
returns text language plpgsql immutable parallel safe as $$
declare
    said text := case when past then 'case when v.item_id is null then i.%1$I else v.%1$I end' else 'i.%1$I' end;
    tier text := case when not past then 'i.tier' else
        'coalesce((select case l.action when ''archived'' then l.detail ->> ''tier'' else ''archive'' end'
        ' from almagest.audit_log as l where l.org_id = ($1).org_id and l.item_id = i.id'
        ' and l.action in (''archived'', ''restored'') and l.created_at > $4 order by l.id limit 1), i.tier)'
    end;
    one_of text := format('any(engine.text_list(%s -> %L))', source, name);
    value text := format('(%s ->> %L)', source, name);
begin
    return case
        when name in ('kind', 'origin') then format('i.%I = %s', name, one_of)
        when name in ('type', 'agent_name', 'source_ref') then format('%s = %s', format(said, name), one_of)
        when name = 'tier' then format('%s = %s', tier, one_of)
        when name = 'conversation' then format('i.conversation_id = %s', one_of)
        when name = 'mime_type' then format('lower(i.mime_type) = %s', one_of)
        when name = 'extension' then format(
            'exists (select from unnest(engine.text_list(%s -> %L)) as e'
            ' where right(lower(i.file_name), length(e) + 1) = ''.'' || e)', source, name
        )
        when name = 'title' then format('position(lower(%s) in lower(%s)) > 0', value, format(said, 'title'))
        when name = 'metadata' then format('%s @> (%s -> %L)', format(said, 'metadata'), source, name)
        when name = 'priority_min' then format('%s >= %s::real', format(said, 'priority'), value)
        when name = 'priority_max' then format('%s <= %s::real', format(said, 'priority'), value)
        when name = 'created_after' then format('i.created_at >= %s::timestamptz', value)
        when name = 'created_before' then format('i.created_at < %s::timestamptz', value)
        when name = 'occurred_after' then format('%s >= %s::timestamptz', format(said, 'occurred_at'), value)
        when name = 'occurred_before' then format('%s < %s::timestamptz', format(said, 'occurred_at'), value)
        when name in ('updated_after', 'updated_before') then format(
            '%s %s %s::timestamptz',
            case when past then 'case when v.item_id is null then i.updated_at else v.valid_from end' else 'i.updated_at' end,
            case name when 'updated_after' then '>=' else '<' end, value
        )
        when name in ('project', 'client', 'deal') then format(
            'i.%I in (select p.id from almagest.%I as p where p.org_id = ($1).org_id and p.slug = %s)',
            name || '_id', name || 's', one_of
        )
        when name = 'agent' then format(
            'i.id in (select assigned.item_id from almagest.item_agents as assigned'
            ' join almagest.agents as a on a.id = assigned.agent_id where a.org_id = ($1).org_id and a.slug = %s)', one_of
        )
        when name = 'folder' then format('i.folder_id = any(engine.text_list(%s -> %L)::uuid[])', source, name)
        when name = 'folder_tree' then format(
            'i.folder_id in (with recursive tree as (select f.id from almagest.folders as f'
            ' where f.org_id = ($1).org_id and f.id = any(engine.text_list(%s -> %L)::uuid[])'
            ' union select f.id from almagest.folders as f join tree on f.parent_id = tree.id'
            ' where f.org_id = ($1).org_id) select tree.id from tree)', source, name
        )
    end;
end
$$;

-- The conditions on tags: those of the item now, or those that the version of the time had. One for each tag that is
-- wanted, so that the rarest of them leads.
create or replace function engine.tags_condition(name text, wanted jsonb, source text, past boolean)
returns text language plpgsql immutable parallel safe as $$
declare
    listed text := format('engine.text_list(%s -> %L)', source, name);
    has constant text := 'i.id in (select t.item_id from almagest.item_tags as t where t.org_id = ($1).org_id and t.tag = %s)';
    now_has text := case name
        when 'tags' then coalesce((
            select string_agg(format(has, format('(%s -> %L ->> %s)', source, name, n - 1)), ' and ' order by n)
            from generate_series(1, jsonb_array_length(wanted)) as n
        ), 'false')
        else format(has, format('any(%s)', listed))
    end;
begin
    return case
        when not past then format('(%s)', now_has)
        else format(
            'case when v.item_id is null then %s else %s <> ''{}'' and v.tags %s %2$s end',
            now_has, listed, case name when 'tags' then '@>' else '&&' end
        )
    end;
end
$$;

-- All conditions of a JSON object of filters as SQL (see engine.filter_condition); 422 unknown_filter for another name.
create or replace function engine.filter_conditions(filters jsonb, source text, past boolean)
returns text language plpgsql stable as $$
declare
    conditions text := 'true';
    name text;
    condition text;
begin
    for name in select jsonb_object_keys(filters) order by 1 loop
        condition := case
            when name in ('tags', 'tags_any') then engine.tags_condition(name, filters -> name, source, past)
            when name <> 'any' then engine.filter_condition(name, source, past)
            else (
                select format('(%s)', coalesce(string_agg(engine.filter_conditions(
                    a.one - 'any', format('(%s -> ''any'' -> %s)', source, a.place - 1), past
                ), ' or ' order by a.place), 'false'))
                from jsonb_array_elements(filters -> 'any') with ordinality as a (one, place)
            )
        end;
        if condition is null then
            perform engine.problem(422, 'unknown_filter', 'There is no filter of such a name.');
        end if;
        conditions := conditions || ' and ' || condition;
    end loop;
    return conditions;
end
$$;

-- Items, and at a time in the past what tells how they were then, as SQL behind from, for execute … using c, states,
-- filters, as_of: almagest.items as i; past, also the version valid then as v, where it has been edited since, facts as
-- f, and the last that the audit log tells of its archive until then, as a.
create or replace function engine.items_at(past boolean)
returns text language sql immutable parallel safe as $$
    select 'almagest.items as i' || case when past then
        ' left join almagest.item_versions as v'
        ' on v.item_id = i.id and i.updated_at > $4 and v.valid_from <= $4 and v.valid_to > $4'
        ' left join almagest.facts as f on f.item_id = i.id'
        ' left join (select distinct on (l.item_id) l.item_id, l.action from almagest.audit_log as l'
        ' where l.org_id = ($1).org_id and l.action in (''archived'', ''restored'') and l.created_at <= $4'
        ' order by l.item_id, l.id desc) as a on a.item_id = i.id'
    else '' end
$$;

-- The version of an item that counts, as SQL over engine.items_at; null where it is not known what it said then.
create or replace function engine.version_at(past boolean)
returns text language sql immutable parallel safe as $$
    select case
        when past then 'coalesce(v.version, case when i.updated_at <= $4 then i.version end)' else 'i.version'
    end
$$;

-- The state that an item is in, or was in at the time $4, as SQL over engine.items_at. What is archived or revoked
-- without a time has been so always.
--   told  what becomes of each state, as a format of its name: '%L' is the name itself. A condition is asked of each
--         name by itself, '%L = any($2)', since of = any over the whole case, the planner would expect next to no rows.
create or replace function engine.state_at(past boolean, told text)
returns text language sql immutable parallel safe as $$
    select case
        when not past then format(replace(told, '%L', '%s'), 'i.state')
        else 'case when i.state = ''provisional'' then ' || format(told, 'provisional')
            || ' when i.state = ''revoked'' and not coalesce(f.revoked_at > $4, false) then ' || format(told, 'revoked')
            || ' when i.state = ''archived'' and not coalesce(i.archived_at > $4, false) then ' || format(told, 'archived')
            || ' when a.action = ''archived'' then ' || format(told, 'archived')
            || ' else ' || format(told, 'active') || ' end'
    end
$$;

-- Whether an item was there at the time $4, whatever its state, as SQL over engine.items_at.
create or replace function engine.was_there(past boolean)
returns text language sql immutable parallel safe as $$
    select case when past then 'i.created_at <= $4 and i.state <> ''erased''' else 'true' end
$$;

-- The query of engine.matching_chunks, for execute … using c, states, filters, as_of.
create or replace function engine.matching_query(filters jsonb, past boolean)
returns text language plpgsql stable as $$
begin
    return concat_ws(
        ' ',
        'select array_agg(k.id) from', engine.items_at(past),
        'join almagest.chunks as k on k.item_id = i.id and', engine.version_at(past),
        case when past then 'between k.since_version and k.version' else '= k.version' end,
        'where', engine.was_there(past), 'and', engine.state_at(past, '%L = any($2)'),
        'and engine.visible($1, i.org_id, i.user_id, i.client_id, i.deal_id, i.agent_ids) and',
        engine.filter_conditions(filters, '$3', past)
    );
end
$$;

-- How one item stands to a search, by the same conditions as engine.matching_query: whether it was there, its state,
-- its version (null where what it said then is not known) and the filters that it does not pass, by name.
create or replace function engine.judge_item(
    c engine.caller, item uuid, filters jsonb, as_of timestamptz,
    out there boolean, out state text, out version int, out failed text[]
)
language plpgsql stable as $$
declare
    past constant boolean := as_of is not null;
    failing constant text := (
        select string_agg(format(
            'case when (%s) is not true then %L end',
            engine.filter_conditions(jsonb_build_object(f.key, f.value), '$3', past), f.key
        ), ', ' order by f.key)
        from jsonb_each(filters) as f
    );
begin
    execute concat_ws(
        ' ',
        'select', engine.was_there(past), ',', engine.state_at(past, '%L'), ',', engine.version_at(past), ',',
        'array_remove(array[', failing, ']::text[], null)', 'from', engine.items_at(past), 'where i.id = $2'
    ) into there, state, version, failed using c, item, filters, as_of;
end
$$;

-- The chunks that a search may answer with: of items that the caller may see, in one of the states, that pass the
-- filters; none where none does.
--   filters  without nulls (see engine.given_filters)
--   as_of    null for now; otherwise the chunks of the version valid then, of items in one of the states then, whatever
--            has become of them since, unless they were erased
-- Planned anew each time for what is asked, so that a selective filter is answered from its index: 1 to 10 ms in an org
-- of 100,000 items, and about 200 for what lets nearly all of them through.
create or replace function engine.matching_chunks(c engine.caller, states text[], filters jsonb, as_of timestamptz)
returns bigint[] language plpgsql stable as $$
declare
    matching bigint[];
begin
    execute engine.matching_query(filters, as_of is not null) into matching using c, states, filters, as_of;
    return coalesce(matching, '{}');
end
$$;
