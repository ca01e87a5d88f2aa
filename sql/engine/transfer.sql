-- What an import puts in place beside the plain rows of an export: chunks with their terms and vectors.

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

    insert into almagest.embeddings (
        chunk_id, model_id, item_id, org_id, user_id, client_id, deal_id, agent_ids, state, vector
    )
    select
        k.id, engine.model_id(v.key), i.id, i.org_id, i.user_id, i.client_id, i.deal_id, i.agent_ids,
        case when k.version < i.version then 'replaced' else i.state end, v.value::@extschema:vector@.halfvec
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
