-- Writing: new memories, edits, archive, restore, erasure. Each function is part of one transaction with its audit row.

-- The id of a project, client or deal by its slug; 422 unknown_<what> where there is none that the caller may see (one
-- answer for both, so that it tells nothing of what is hidden). Null stays null.
create or replace function engine.place_id(c engine.caller, what text, slug text)
returns uuid language plpgsql stable as $$
declare
    place uuid;
begin
    if slug is null then
        return null;
    end if;
    place := case what
        when 'project' then (
            select p.id from almagest.projects as p where p.org_id = (c).org_id and p.slug = place_id.slug
        )
        when 'client' then (
            select k.id from almagest.clients as k
            where k.org_id = (c).org_id and k.slug = place_id.slug and ((c).manages or k.id = any((c).client_ids))
        )
        when 'deal' then (
            select d.id from almagest.deals as d
            where d.org_id = (c).org_id and d.slug = place_id.slug and ((c).manages or d.id = any((c).deal_ids))
        )
    end;
    if place is null then
        perform engine.problem(422, 'unknown_' || what, format('There is no %s %L that you work on.', what, slug));
    end if;
    return place;
end
$$;

-- The type's row for the caller's org; 422 unknown_type.
create or replace function engine.demand_type(c engine.caller, type text)
returns almagest.item_types language plpgsql stable as $$
declare
    known almagest.item_types;
begin
    select t.* into known from engine.item_types((c).org_id) as t where t.name = type;
    if known.name is null then
        perform engine.problem(422, 'unknown_type', format('There is no item type %L.', type));
    end if;
    return known;
end
$$;

-- An item that the caller sees, locked for a change; 404 not_found otherwise, whatever the reason.
create or replace function engine.lock_item(c engine.caller, item uuid)
returns almagest.items language plpgsql as $$
declare
    i almagest.items;
begin
    select * into i from almagest.items as it
    where it.id = item and it.state <> 'erased'
        and (it.state <> 'provisional' or (c).manages)
        and engine.visible(c, it.org_id, it.user_id, it.client_id, it.deal_id, it.agent_ids)
    for no key update;
    if i.id is null then
        perform engine.problem(404, 'not_found', 'There is no such item.');
    end if;
    -- workspace items enter system prompts, so only those who answer for the org change them
    if i.scope = 'workspace' then
        perform engine.demand_manager(c);
    end if;
    return i;
end
$$;

create or replace function engine.add_tags(i almagest.items, tags jsonb)
returns void language sql as $$
    insert into almagest.item_tags (item_id, org_id, user_id, tag)
    select (i).id, (i).org_id, (i).user_id, t.tag
    from jsonb_array_elements_text(coalesce(nullif(tags, 'null'), '[]')) as t (tag)
    on conflict do nothing
$$;

-- m: one memory of api.write_memories, checked by the edge. Returns {id, version, index_status, deduplicated}.
-- The same text in the same scope, conversation place and source_ref is stored once; written again, it gains the new
-- tags, and comes back from the archive.
create or replace function engine.write_memory(c engine.caller, m jsonb, model text)
returns jsonb language plpgsql as $$
declare
    known almagest.item_types := engine.demand_type(c, coalesce(m ->> 'type', 'note'));
    private boolean := coalesce((m ->> 'private')::boolean, false);
    i almagest.items;
    tags_before int;
begin
    i.org_id := (c).org_id;
    i.user_id := case when private then (c).user_id end;
    if private and ((c).user_id is null or not known.may_be_private) then
        perform engine.problem(422, 'cannot_be_private', case
            when (c).user_id is null then 'This key belongs to no person, so it cannot write private memories.'
            else format('Items of type %L cannot be private.', known.name)
        end);
    end if;
    i.project_id := engine.place_id(c, 'project', m ->> 'project');
    i.deal_id := engine.place_id(c, 'deal', m ->> 'deal');
    i.client_id := coalesce(
        engine.place_id(c, 'client', m ->> 'client'),
        (select d.client_id from almagest.deals as d where d.id = i.deal_id)
    );
    if i.deal_id is not null
        and i.client_id <> (select d.client_id from almagest.deals as d where d.id = i.deal_id)
    then
        perform engine.problem(422, 'deal_of_another_client', 'The deal belongs to another client.');
    end if;

    insert into almagest.items (
        org_id, user_id, project_id, client_id, deal_id, kind, type, title, content, metadata, origin, source_ref,
        agent_name, author_user_id, author_agent_id, conversation_id, conversation_position, priority, content_hash,
        index_status, occurred_at
    ) values (
        i.org_id, i.user_id, i.project_id, i.client_id, i.deal_id, 'memory', known.name, m ->> 'title', m ->> 'content',
        coalesce(nullif(m -> 'metadata', 'null'), '{}'), coalesce(m ->> 'origin', 'agent'), m ->> 'source_ref',
        m ->> 'agent_name', (c).user_id, (c).agent_id, m -> 'conversation' ->> 'id',
        (m -> 'conversation' ->> 'position')::int, coalesce((m ->> 'importance')::real, 0.5), m ->> 'content_hash',
        'pending', (m ->> 'occurred_at')::timestamptz
    )
    on conflict do nothing
    returning * into i;

    if i.id is null then
        return engine.restate_memory(c, m);
    end if;
    perform engine.add_tags(i, m -> 'tags');
    insert into almagest.strength_signals (item_id, org_id, user_id, starting_strength)
    values (i.id, i.org_id, i.user_id, known.starting_strength);
    update almagest.items as it set index_status = engine.replace_chunks(i, m -> 'chunks', model)
    where it.id = i.id
    returning it.index_status into i.index_status;
    perform engine.audit(c, i, 'created');
    return jsonb_build_object(
        'id', i.id, 'version', i.version, 'index_status', i.index_status, 'deduplicated', false
    );
end
$$;

-- The memory that m repeats: new tags are added, an archived one comes back.
create or replace function engine.restate_memory(c engine.caller, m jsonb)
returns jsonb language plpgsql as $$
declare
    i almagest.items;
    had int;
    has int;
begin
    select it.* into strict i from almagest.items as it
    where it.org_id = (c).org_id and it.content_hash = m ->> 'content_hash' and it.kind = 'memory'
        and it.user_id is not distinct from case when (m ->> 'private')::boolean then (c).user_id end
        and it.project_id is not distinct from engine.place_id(c, 'project', m ->> 'project')
        and it.deal_id is not distinct from engine.place_id(c, 'deal', m ->> 'deal')
        and it.client_id is not distinct from coalesce(
            engine.place_id(c, 'client', m ->> 'client'),
            (select d.client_id from almagest.deals as d where d.id = engine.place_id(c, 'deal', m ->> 'deal'))
        )
        and it.agent_ids is null
        and it.conversation_id is not distinct from m -> 'conversation' ->> 'id'
        and it.conversation_position is not distinct from (m -> 'conversation' ->> 'position')::int
        and it.source_ref is not distinct from m ->> 'source_ref'
        and it.state in ('active', 'provisional', 'archived')
    for no key update;
    select count(*) into had from almagest.item_tags as t where t.item_id = i.id;
    perform engine.add_tags(i, m -> 'tags');
    select count(*) into has from almagest.item_tags as t where t.item_id = i.id;
    if has > had then
        perform engine.refresh_lexical(i);
        perform engine.audit(c, i, 'tagged');
    end if;
    if i.state = 'archived' then
        i := engine.set_state(c, i, 'active');
    end if;
    return jsonb_build_object(
        'id', i.id, 'version', i.version, 'index_status', i.index_status, 'deduplicated', true
    );
end
$$;

-- Moves an item between active and archived, with everything that search reads of it.
create or replace function engine.set_state(c engine.caller, i almagest.items, state text)
returns almagest.items language plpgsql as $$
declare
    moved almagest.items;
begin
    update almagest.items as it
    set state = set_state.state,
        archived_at = case when set_state.state = 'archived' then now() end,
        tier = case when set_state.state = 'archived' then 'archive' else 'warm' end
    where it.id = (i).id
    returning * into moved;
    perform engine.refresh_visibility(moved);
    perform engine.audit(c, moved, case when state = 'archived' then 'archived' else 'restored' end);
    return moved;
end
$$;

-- request: {id, version, changes, content_hash?, chunks?, model?}; see api.update_item.
create or replace function engine.update_item(c engine.caller, request jsonb)
returns almagest.items language plpgsql as $$
declare
    i almagest.items := engine.lock_item(c, (request ->> 'id')::uuid);
    old almagest.items := i;
    changes jsonb := request -> 'changes';
    old_tags text[] := array(select t.tag from almagest.item_tags as t where t.item_id = i.id order by t.tag);
begin
    if i.version <> (request ->> 'version')::int then
        perform engine.problem(409, 'version_conflict', format(
            'The item is at version %s; read it again and apply your change to that.', i.version
        ), jsonb_build_object('version', i.version));
    end if;
    if changes ? 'type' then
        perform engine.demand_type(c, changes ->> 'type');
    end if;

    insert into almagest.item_versions (
        item_id, version, org_id, user_id, type, title, summary, content, plain_text, metadata, tags, priority,
        content_hash, valid_from, valid_to
    ) values (
        i.id, i.version, i.org_id, i.user_id, i.type, i.title, i.summary, i.content, i.plain_text, i.metadata, old_tags,
        i.priority, i.content_hash, i.updated_at, now()
    );
    begin
        update almagest.items as it
        set version = it.version + 1,
            updated_at = now(),
            type = coalesce(changes ->> 'type', it.type),
            title = case when changes ? 'title' then changes ->> 'title' else it.title end,
            content = coalesce(changes ->> 'content', it.content),
            content_hash = case when changes ? 'content' then request ->> 'content_hash' else it.content_hash end,
            metadata = coalesce(nullif(changes -> 'metadata', 'null'), it.metadata),
            source_ref = case when changes ? 'source_ref' then changes ->> 'source_ref' else it.source_ref end,
            agent_name = case when changes ? 'agent_name' then changes ->> 'agent_name' else it.agent_name end,
            occurred_at = case
                when changes ? 'occurred_at' then (changes ->> 'occurred_at')::timestamptz else it.occurred_at
            end,
            priority = coalesce((changes ->> 'importance')::real, it.priority)
        where it.id = i.id
        returning * into i;
    exception when unique_violation then
        perform engine.problem(409, 'duplicate', 'Another item of the same scope already says exactly this.');
    end;
    if jsonb_typeof(changes -> 'tags') = 'array' then
        delete from almagest.item_tags as t where t.item_id = i.id and t.source = 'manual';
        perform engine.add_tags(i, changes -> 'tags');
    end if;
    i := engine.reindex(i, old, request);
    perform engine.audit(c, i, 'edited', jsonb_build_object(
        'fields', (select jsonb_agg(field order by field) from jsonb_object_keys(changes) as field)
    ));
    return i;
end
$$;

-- Brings what search reads in line with an edit. New text comes with its chunks; a new title changes the terms at once,
-- and the vectors by the index job. A lease on the old version ends, so that its work is not taken.
create or replace function engine.reindex(i almagest.items, old almagest.items, request jsonb)
returns almagest.items language plpgsql as $$
declare
    changes jsonb := request -> 'changes';
    status text := (i).index_status;
begin
    if changes ? 'content' then
        status := engine.replace_chunks(i, request -> 'chunks', request ->> 'model');
    elsif changes ?| '{title,tags}' then
        perform engine.refresh_lexical(i);
        if (i).title is distinct from (old).title then
            status := 'text_ready';
        end if;
    end if;
    update almagest.items as it
    set index_status = status, index_error = null, index_attempts = 0, index_after = now(),
        lease_owner = null, lease_expires_at = null
    where it.id = (i).id
    returning * into i;
    return i;
end
$$;

-- Erases what an item said, everywhere, and counts what went; the skeleton stays: that it was there, when it changed.
-- strict: its name goes too, also from the audit log.
create or replace function engine.erase_item(c engine.caller, item uuid, strict boolean)
returns jsonb language plpgsql as $$
declare
    i almagest.items := engine.lock_item(c, item);
    erased jsonb;
begin
    if not ((c).manages or i.user_id = (c).user_id
        or i.author_user_id = (c).user_id or i.author_agent_id = (c).agent_id) is true
    then
        perform engine.problem(
            403, 'forbidden', 'Only the author, the person it is private to, an owner or an admin may erase an item.'
        );
    end if;
    select jsonb_build_object(
        'chunks', (select count(*) from almagest.chunks as k where k.item_id = i.id),
        'embeddings', (select count(*) from almagest.embeddings as e where e.item_id = i.id),
        'versions', (select count(*) from almagest.item_versions as v where v.item_id = i.id) + 1,
        'tags', (select count(*) from almagest.item_tags as t where t.item_id = i.id),
        'pins', (select count(*) from almagest.pins as p where p.item_id = i.id),
        'facts', (select count(*) from almagest.facts as f where f.item_id = i.id)
    ) into erased;
    -- terms and vectors go with their chunks
    delete from almagest.chunks as k where k.item_id = i.id;
    delete from almagest.item_versions as v where v.item_id = i.id;
    delete from almagest.item_tags as t where t.item_id = i.id;
    delete from almagest.item_agents as a where a.item_id = i.id;
    delete from almagest.pins as p where p.item_id = i.id;
    delete from almagest.facts as f where f.item_id = i.id;
    perform engine.audit(c, i, 'erased', jsonb_build_object('erased', erased, 'strict', strict));
    if strict then
        update almagest.audit_log as a set name = null where a.item_id = i.id;
    end if;
    update almagest.items as it
    set state = 'erased', slug = null, title = null, summary = null, content = null, plain_text = null,
        metadata = '{}', origin_metadata = '{}', source_ref = null, external_id = null, run_id = null,
        agent_name = null, conversation_id = null, conversation_position = null, content_hash = null,
        file_url = null, file_name = null, mime_type = null, file_size = null, occurred_at = null,
        index_status = null, index_error = null, lease_owner = null, lease_expires_at = null, archived_at = null,
        updated_at = now()
    where it.id = i.id;
    return erased;
end
$$;
