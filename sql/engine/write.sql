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
        perform engine.problem(422, 'unknown_' || what, format('There is no %s of this name that you work on.', what));
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
        perform engine.problem(422, 'unknown_type', 'There is no item type of this name.');
    end if;
    return known;
end
$$;

-- Private items need a person to belong to, and a type that may be private; 422 cannot_be_private.
create or replace function engine.demand_privacy(c engine.caller, known almagest.item_types)
returns void language plpgsql as $$
begin
    if (c).user_id is null then
        perform engine.problem(
            422, 'cannot_be_private', 'This key belongs to no person, so it has no private memories.'
        );
    end if;
    if not (known).may_be_private then
        perform engine.problem(422, 'cannot_be_private', 'Items of this type cannot be private.');
    end if;
end
$$;

-- An item that the caller sees, locked; 404 not_found otherwise, whatever the reason. Both privacy layers are asked.
create or replace function engine.lock_item(c engine.caller, item uuid)
returns almagest.items language plpgsql as $$
declare
    i almagest.items;
begin
    select * into i from almagest.items as it
    where it.id = item and engine.readable(c, it)
    for no key update;
    if i.id is null or not engine.is_readable(i.id) then
        perform engine.problem(404, 'not_found', 'There is no such item.');
    end if;
    return i;
end
$$;

-- The same, for a change of what it says or whether it is there. Canon enters system prompts, so only those who
-- answer for the org change it: workspace items and what is pinned for all. What is pinned privately is changed by its
-- owner in person, not by an agent in their name.
create or replace function engine.lock_item_for_change(c engine.caller, item uuid)
returns almagest.items language plpgsql as $$
declare
    i almagest.items := engine.lock_item(c, item);
begin
    if i.scope = 'workspace' or exists (
        select from almagest.pins as p where p.item_id = i.id and p.user_id is null
    ) then
        perform engine.demand_manager(c);
    elsif (c).agent_id is not null and exists (select from almagest.pins as p where p.item_id = i.id) then
        perform engine.problem(403, 'forbidden', 'What a person has pinned is changed by that person alone.');
    end if;
    return i;
end
$$;

-- Gives an item tags (an array, or null for none) that it does not have yet.
create or replace function engine.add_tags(i almagest.items, tags jsonb)
returns void language sql as $$
    insert into almagest.item_tags (item_id, org_id, user_id, tag)
    select (i).id, (i).org_id, (i).user_id, t.tag
    from jsonb_array_elements_text(coalesce(nullif(tags, 'null'), '[]')) as t (tag)
    on conflict do nothing
$$;

-- The row of a new memory m (see api.write_memories), checked, with the places that it names; not stored.
create or replace function engine.new_memory(c engine.caller, m jsonb)
returns almagest.items language plpgsql as $$
declare
    known almagest.item_types := engine.demand_type(c, coalesce(m ->> 'type', 'note'));
    i almagest.items;
    client_of_deal uuid;
begin
    i.org_id := (c).org_id;
    if (m ->> 'private')::boolean then
        perform engine.demand_privacy(c, known);
        i.user_id := (c).user_id;
    end if;
    i.project_id := engine.place_id(c, 'project', m ->> 'project');
    i.client_id := engine.place_id(c, 'client', m ->> 'client');
    i.deal_id := engine.place_id(c, 'deal', m ->> 'deal');
    select d.client_id into client_of_deal from almagest.deals as d where d.id = i.deal_id;
    if i.client_id <> client_of_deal then
        perform engine.problem(422, 'deal_of_another_client', 'The deal belongs to another client.');
    end if;
    i.client_id := coalesce(i.client_id, client_of_deal);
    i.kind := 'memory';
    i.type := known.name;
    i.title := m ->> 'title';
    i.content := m ->> 'content';
    i.content_hash := m ->> 'content_hash';
    i.metadata := coalesce(nullif(m -> 'metadata', 'null'), '{}');
    i.origin := coalesce(m ->> 'origin', 'agent');
    i.source_ref := m ->> 'source_ref';
    i.agent_name := m ->> 'agent_name';
    i.author_user_id := (c).user_id;
    i.author_agent_id := (c).agent_id;
    i.conversation_id := m -> 'conversation' ->> 'id';
    i.conversation_position := (m -> 'conversation' ->> 'position')::int;
    i.priority := coalesce((m ->> 'importance')::real, 0.5);
    i.occurred_at := (m ->> 'occurred_at')::timestamptz;
    return i;
end
$$;

-- Writes one memory m and returns {id, version, index_status, deduplicated}. The same text in the same scope, place in
-- a conversation and source_ref is stored once; written again, it gains the new tags and comes back from the archive.
create or replace function engine.write_memory(c engine.caller, m jsonb, model text)
returns jsonb language plpgsql as $$
declare
    new almagest.items := engine.new_memory(c, m);
    i almagest.items;
begin
    loop
        insert into almagest.items (
            org_id, user_id, project_id, client_id, deal_id, kind, type, title, content, content_hash, metadata, origin,
            source_ref, agent_name, author_user_id, author_agent_id, conversation_id, conversation_position, priority,
            occurred_at, index_status
        ) values (
            new.org_id, new.user_id, new.project_id, new.client_id, new.deal_id, new.kind, new.type, new.title,
            new.content, new.content_hash, new.metadata, new.origin, new.source_ref, new.agent_name,
            new.author_user_id, new.author_agent_id, new.conversation_id, new.conversation_position, new.priority, new.occurred_at,
            'pending'
        )
        on conflict do nothing
        returning * into i;
        exit when i.id is not null;
        i := engine.restate_memory(c, new, m -> 'tags');
        if i.id is not null then
            return jsonb_build_object(
                'id', i.id, 'version', i.version, 'index_status', i.index_status, 'deduplicated', true
            );
        end if;
        -- what was in the way has been erased or edited in between
    end loop;
    perform engine.add_tags(i, m -> 'tags');
    insert into almagest.strength_signals (item_id, org_id, user_id, starting_strength)
    values (i.id, i.org_id, i.user_id, (engine.demand_type(c, i.type)).starting_strength);
    update almagest.items as it set index_status = engine.replace_chunks(i, m -> 'chunks', model)
    where it.id = i.id
    returning it.index_status into i.index_status;
    perform engine.audit(c, i, 'created');
    return jsonb_build_object(
        'id', i.id, 'version', i.version, 'index_status', i.index_status, 'deduplicated', false
    );
end
$$;

-- The stored memory that a new one repeats: tags are added, and it comes back from the archive. Null where it has gone.
create or replace function engine.restate_memory(c engine.caller, new almagest.items, tags jsonb)
returns almagest.items language plpgsql as $$
declare
    i almagest.items;
    had int;
    has int;
begin
    select it.* into i from almagest.items as it
    where it.org_id = (new).org_id and it.content_hash = (new).content_hash and it.kind = (new).kind
        and it.user_id is not distinct from (new).user_id
        and it.project_id is not distinct from (new).project_id
        and it.client_id is not distinct from (new).client_id
        and it.deal_id is not distinct from (new).deal_id
        and it.scope = 'library'
        and it.conversation_id is not distinct from (new).conversation_id
        and it.conversation_position is not distinct from (new).conversation_position
        and it.source_ref is not distinct from (new).source_ref
        and it.state in ('active', 'archived')
    for no key update;
    if i.id is null then
        return null;
    end if;
    select count(*) into had from almagest.item_tags as t where t.item_id = i.id;
    perform engine.add_tags(i, tags);
    select count(*) into has from almagest.item_tags as t where t.item_id = i.id;
    if has > had then
        perform engine.refresh_lexical(i);
        perform engine.audit(c, i, 'tagged');
    end if;
    if i.state = 'archived' then
        -- to say it again is not to make it canon again
        delete from almagest.pins as p where p.item_id = i.id and p.user_id is null and not (c).manages;
        i := engine.set_state(c, i, 'active');
    end if;
    return i;
end
$$;

-- Moves an item between active and archived, with everything that search reads of it. The audit log keeps the tier that
-- it left, and gives it back.
create or replace function engine.set_state(c engine.caller, i almagest.items, state text)
returns almagest.items language plpgsql as $$
declare
    archives boolean := state = 'archived';
    moved almagest.items;
begin
    update almagest.items as it
    set state = set_state.state,
        archived_at = case when archives then now() end,
        tier = case when archives then 'archive' else coalesce((
            select a.detail ->> 'tier' from almagest.audit_log as a
            where a.org_id = it.org_id and a.item_id = it.id and a.action = 'archived'
            order by a.id desc
            limit 1
        ), 'warm') end
    where it.id = (i).id
    returning * into moved;
    perform engine.refresh_visibility(moved);
    if archives then
        perform engine.audit(c, moved, 'archived', jsonb_build_object('tier', (i).tier));
    else
        perform engine.audit(c, moved, 'restored');
    end if;
    return moved;
end
$$;

-- The whole of api.archive_item and api.restore_item: brings an item into a state in which it may be already.
create or replace function engine.move_item(c engine.caller, request jsonb, state text)
returns jsonb language plpgsql as $$
declare
    answer jsonb := engine.recall_answer(c, request);
    i almagest.items;
begin
    if answer is not null then
        return answer;
    end if;
    i := engine.lock_item_for_change(c, (request ->> 'id')::uuid);
    if i.state not in ('active', 'archived') then
        perform engine.problem(409, 'wrong_state', format('An item that is %s is neither archived nor restored.', i.state));
    end if;
    if i.state <> state then
        i := engine.set_state(c, i, state);
    end if;
    return engine.remember_answer(c, request, jsonb_build_object('id', i.id, 'state', i.state, 'version', i.version));
end
$$;

-- request: {id, version, changes, content_hash?, chunks?, model?}; see api.update_item.
create or replace function engine.update_item(c engine.caller, request jsonb)
returns almagest.items language plpgsql as $$
declare
    i almagest.items := engine.lock_item_for_change(c, (request ->> 'id')::uuid);
    old almagest.items := i;
    changes jsonb := request -> 'changes';
    known almagest.item_types;
    old_tags text[] := array(select t.tag from almagest.item_tags as t where t.item_id = i.id order by t.tag);
begin
    if i.version is distinct from (request ->> 'version')::int then
        perform engine.problem(409, 'version_conflict', format(
            'The item is at version %s; read it again and apply your change to that.', i.version
        ), jsonb_build_object('version', i.version));
    end if;
    if changes ? 'type' then
        known := engine.demand_type(c, changes ->> 'type');
        if i.user_id is not null then
            perform engine.demand_privacy(c, known);
        end if;
    end if;
    if changes ? 'evergreen' and i.user_id is null then
        perform engine.demand_manager(c);
    end if;

    insert into almagest.item_versions (
        item_id, version, org_id, user_id, type, title, summary, content, plain_text, metadata, tags, priority,
        source_ref, agent_name, occurred_at, evergreen, content_hash, valid_from, valid_to
    ) values (
        i.id, i.version, i.org_id, i.user_id, i.type, i.title, i.summary, i.content, i.plain_text, i.metadata, old_tags,
        i.priority, i.source_ref, i.agent_name, i.occurred_at, i.evergreen, i.content_hash, i.updated_at, now()
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
            priority = coalesce((changes ->> 'importance')::real, it.priority),
            evergreen = coalesce((changes ->> 'evergreen')::boolean, it.evergreen),
            validated_at = case when changes ? 'content' then now() else it.validated_at end
        where it.id = i.id
        returning * into i;
    exception when unique_violation then
        perform engine.problem(409, 'duplicate', 'Another item of the same scope already says exactly this.');
    end;
    if changes ? 'content' then
        -- what was just written is as fresh as what is new
        update almagest.strength_signals as s set validated_at = now(), updated_at = now() where s.item_id = i.id;
    end if;
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
-- and the vectors by the index job. What was searched before stays, for searches of that time. A lease on the old
-- version ends, so that its work is not taken; the item waits for the next one.
create or replace function engine.reindex(i almagest.items, old almagest.items, request jsonb)
returns almagest.items language plpgsql as $$
declare
    changes jsonb := request -> 'changes';
    status text := case
        when (i).index_status not in ('indexing', 'failed') then (i).index_status
        when exists (select from almagest.chunks as k where k.item_id = (i).id and k.version = (old).version) then 'text_ready'
        else 'pending'
    end;
begin
    if changes ? 'content' then
        perform engine.retire_chunks(old);
        status := engine.replace_chunks(i, request -> 'chunks', request ->> 'model');
    elsif changes ? 'tags' or (i).title is distinct from (old).title then
        perform engine.retire_chunks(old), engine.copy_chunks(i, old);
        if (i).title is distinct from (old).title and status = 'search_ready' then
            status := 'text_ready';
        end if;
    else
        update almagest.chunks as k set version = (i).version where k.item_id = (i).id and k.version = (old).version;
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
    i almagest.items := engine.lock_item_for_change(c, item);
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
        'facts', (select count(*) from almagest.facts as f where f.item_id = i.id),
        'traces', engine.redact_traces(i.id)
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
