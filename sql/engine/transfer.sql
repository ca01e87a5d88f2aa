-- Storing the lines of an export. What is wrong with a line is answered and not raised: what is raised is in the log of
-- the server, with the row, the text or the JSON that it was raised for.

-- Makes the org that a header names.
--   header   text of the header's line: what Postgres cannot read as JSON is answered too
--   returns  {id}, null in it where an org of that id or slug is here already; or {code, message}
create or replace function engine.import_org(header text)
returns jsonb language plpgsql as $$
declare
    made uuid;
    state text;
    said text;
begin
    insert into almagest.orgs (id, slug, name, settings, created_at)
    select o.id, o.slug, o.name, o.settings, o.created_at
    from jsonb_populate_record(null::almagest.orgs, header::jsonb -> 'org') as o
    on conflict do nothing
    returning id into made;
    return jsonb_build_object('id', made);
exception when data_exception or integrity_constraint_violation or program_limit_exceeded then
    get stacked diagnostics state = returned_sqlstate, said = message_text;
    return jsonb_build_object('code', state, 'message', said);
end
$$;

-- Stores lines of one table, all or none.
--   person   whose they become; null: the lines are an org's
--   sources  {column: where its value comes from: line, org, person, or item for what the row's item says}
--   places   {projects, clients, deals, folders, agents: {id in the lines: id in this org}}, for a person's
--   lines    text of a JSON array of {row}: what Postgres cannot read as JSON is answered too
--   returns  null where they are stored, else {code, message}
create or replace function engine.import_rows(
    org uuid, person uuid, target text, sources jsonb, places jsonb, lines text
)
returns jsonb language plpgsql as $$
declare
    rows jsonb;
    state text;
    said text;
begin
    -- not above: what is declared is outside of what the exceptions below are caught in
    select jsonb_agg(l.value -> 'row' order by l.ordinality) into rows
    from jsonb_array_elements(lines::jsonb) with ordinality as l;
    if person is not null then
        rows := engine.in_places(rows, places);
    end if;
    perform engine.demand_own_items(org, person, target, rows);
    case target
        when 'chunks' then perform engine.import_chunks(org, rows);
        else execute engine.import_statement(target, sources) using org, person, rows;
    end case;
    if target = 'search_profiles' then
        perform engine.demand_knobs(rows);
    end if;
    return null;
exception when data_exception or integrity_constraint_violation or program_limit_exceeded or sqlstate 'PT422' then
    get stacked diagnostics state = returned_sqlstate, said = message_text;
    return jsonb_build_object('code', state, 'message', said);
end
$$;

-- The insert of rows ($3) of one table into an org ($1), for a person ($2); see engine.import_rows.
create or replace function engine.import_statement(target text, sources jsonb)
returns text language sql immutable as $$
    select format(
        'insert into almagest.%I (%s) select %s from jsonb_populate_recordset(null::almagest.%I, $3) as r%s',
        target, string_agg(format('%I', s.key), ', ' order by s.key),
        string_agg(case s.value
            when 'org' then '$1'
            when 'person' then '$2'
            when 'item' then format('i.%I', s.key)
            else format('r.%I', s.key)
        end, ', ' order by s.key),
        target,
        case when bool_or(s.value = 'item') then ' join almagest.items as i on i.id = r.item_id' else '' end
    )
    from jsonb_each_text(sources) as s
$$;

-- A person's rows with the ids that this org has for what they refer to. Every reference is among the places.
create or replace function engine.in_places(rows jsonb, places jsonb)
returns jsonb language sql immutable as $$
    select jsonb_agg(r.value || jsonb_strip_nulls(jsonb_build_object(
        'project_id', places -> 'projects' -> (r.value ->> 'project_id'),
        'client_id', places -> 'clients' -> (r.value ->> 'client_id'),
        'deal_id', places -> 'deals' -> (r.value ->> 'deal_id'),
        'folder_id', places -> 'folders' -> (r.value ->> 'folder_id'),
        'agent_id', places -> 'agents' -> (r.value ->> 'agent_id'),
        'author_agent_id', places -> 'agents' -> (r.value ->> 'author_agent_id'),
        'agent_ids', (
            select jsonb_agg(places -> 'agents' -> a.id order by a.place)
            from jsonb_array_elements_text(nullif(r.value -> 'agent_ids', 'null')) with ordinality as a (id, place)
        )
    )) order by r.place)
    from jsonb_array_elements(rows) with ordinality as r (value, place)
$$;

-- No row is of an item of another tenant, or of another person: data_exception otherwise. What happened to an item may
-- be told of one that is in the database no more.
create or replace function engine.demand_own_items(org uuid, person uuid, target text, rows jsonb)
returns void language plpgsql as $$
begin
    if exists (
        select
        from jsonb_array_elements(rows) as r (value)
        cross join (values ('item_id'), ('superseded_by')) as n (name)
        left join almagest.items as i on i.id = (r.value ->> n.name)::uuid
        where r.value ->> n.name is not null
            and (i.id is null and (target <> 'audit_log' or person is not null)
                or i.org_id <> org or person is not null and i.user_id is distinct from person)
    ) then
        raise exception using
            errcode = 'data_exception', message = 'belongs to an item that this import does not bring';
    end if;
end
$$;

-- Knobs are such as a search can be carried out with: data_exception otherwise.
create or replace function engine.demand_knobs(rows jsonb)
returns void language plpgsql as $$
declare
    problem jsonb;
begin
    for problem in
        select engine.knob_problem(
            r.value -> 'knobs', coalesce(engine.profile_knobs(null, r.value ->> 'name'), engine.default_knobs())
        )
        from jsonb_array_elements(rows) as r (value)
        where r.value ? 'knobs'
    loop
        if problem is not null then
            raise exception using errcode = 'data_exception', message = problem ->> 'detail';
        end if;
    end loop;
end
$$;

-- Chunks are slices of what their version of the item says: data_exception otherwise.
create or replace function engine.demand_slices(ids bigint[])
returns void language plpgsql as $$
begin
    if exists (
        select
        from (
            select k.item_id, k.version, max(k.end_offset) as latest
            from almagest.chunks as k where k.id = any(ids) group by k.item_id, k.version
        ) as k
        join almagest.items as i on i.id = k.item_id
        left join almagest.item_versions as v on v.item_id = k.item_id and v.version = k.version and k.version < i.version
        cross join lateral (
            select case
                when k.version = i.version then coalesce(i.plain_text, i.content)
                else coalesce(v.plain_text, v.content)
            end
        ) as said (text)
        where said.text is null or k.latest > length(said.text)
    ) then
        raise exception using
            errcode = 'data_exception', message = 'ends after its item''s text, or is of a version that its item does not have';
    end if;
end
$$;

-- Stores chunks of items of an org, in their order, with their vectors, and makes their terms.
--   rows     [{item_id, version, since_version, position, start_offset, end_offset, heading_path, text, vectors}];
--            vectors is {name of a model: "[…]"}, and each is of an item of the org
-- Who may see them is taken from the item. Chunks that an edit has replaced are for searches of the past, as they were.
create or replace function engine.import_chunks(org uuid, rows jsonb)
returns void language plpgsql as $$
declare
    ids bigint[];
begin
    perform engine.register_model(m.name)
    from (
        select distinct v.name
        from jsonb_array_elements(rows) as r (value)
        cross join lateral jsonb_object_keys(r.value -> 'vectors') as v (name)
        order by v.name
    ) as m;
    with made as (
        insert into almagest.chunks (
            item_id, org_id, user_id, version, since_version, position, start_offset, end_offset, heading_path, text
        )
        select
            i.id, i.org_id, i.user_id, r.version, r.since_version, r.position, r.start_offset, r.end_offset, r.heading_path,
            r.text
        from jsonb_populate_recordset(null::almagest.chunks, rows) with ordinality as r
        join almagest.items as i on i.id = r.item_id and i.org_id = org
        order by r.ordinality
        returning id
    )
    select array_agg(id) into ids from made;
    perform engine.demand_slices(ids);

    insert into almagest.embeddings (
        chunk_id, model_id, item_id, org_id, user_id, client_id, deal_id, agent_ids, state, vector
    )
    select
        k.id, engine.model_id(v.key), i.id, i.org_id, i.user_id, i.client_id, i.deal_id, i.agent_ids,
        case when k.version < i.version then 'replaced' else i.state end, engine.parse_vector(v.value)
    from jsonb_array_elements(rows) as r (value)
    cross join lateral jsonb_each_text(r.value -> 'vectors') as v
    join almagest.chunks as k
    on k.item_id = (r.value ->> 'item_id')::uuid and k.version = (r.value ->> 'version')::int
        and k.position = (r.value ->> 'position')::int
    join almagest.items as i on i.id = k.item_id
    where k.id = any(ids);

    insert into almagest.lexical (
        chunk_id, item_id, org_id, user_id, client_id, deal_id, agent_ids, state, kind, sequence, place, tokeniser,
        length, terms, says_when, only_asks, text_hash
    )
    select
        k.id, i.id, i.org_id, i.user_id, i.client_id, i.deal_id, i.agent_ids,
        case when k.version < i.version then 'replaced' else i.state end, i.kind,
        case
            when k.version < i.version and i.conversation_id is not null then md5(i.id::text || '/' || k.version)::uuid
            else engine.sequence_of(i)
        end,
        coalesce(i.conversation_position, k.position), engine.tokeniser_version(), w.length, w.terms, w.says_when,
        w.only_asks, w.text_hash
    from almagest.chunks as k
    join almagest.items as i on i.id = k.item_id
    -- what an edit has replaced is found by what its own version said
    left join almagest.item_versions as v on v.item_id = k.item_id and v.version = k.version and k.version < i.version
    cross join lateral engine.words_of(
        case when v.item_id is null then i.title else v.title end, coalesce(v.tags, engine.tags_of(i.id)),
        k.heading_path, k.text
    ) as w
    where k.id = any(ids);
end
$$;
