-- What search reads of an item: its chunks, their terms and their vectors, made and remade here alone.

-- What is searched with a chunk beside its text: title and tags belong to each of its item's chunks, and to each the
-- headings that it stands under. A first heading that is the title counts once.
create or replace function engine.attributes_text(title text, tags text[], heading_path text)
returns text language sql immutable parallel safe as $$
    select concat_ws(
        E'\n',
        case when starts_with(heading_path || ' > ', title || ' > ') is not true then title end,
        heading_path,
        (select string_agg(distinct t, ' ') from unnest(tags) as t)
    )
$$;

-- What almagest.lexical says of a chunk's words, from its text and what its version of the item says beside it.
create or replace function engine.words_of(title text, tags text[], heading_path text, chunk_text text)
returns table (length int, terms tsvector, says_when boolean, only_asks boolean, text_hash bigint)
language sql stable as $$
    select
        engine.term_count(own.terms), own.terms, engine.says_when(chunk_text), engine.only_asks(chunk_text),
        hashtextextended(chunk_text, 0)
    from (
        select setweight(engine.tokenise(engine.attributes_text(title, tags, heading_path)), 'B')
            || setweight(engine.tokenise(chunk_text), 'A') as terms
        offset 0 -- tokenised once
    ) as own
$$;

-- The tags that an item has now.
create or replace function engine.tags_of(item uuid)
returns text[] language sql stable as $$
    select array(select t.tag from almagest.item_tags as t where t.item_id = item)
$$;

-- Makes the terms of an item's current chunks again.
create or replace function engine.refresh_lexical(i almagest.items)
returns void language sql as $$
    insert into almagest.lexical (
        chunk_id, item_id, org_id, user_id, client_id, deal_id, agent_ids, state, kind, sequence, place, tokeniser,
        length, terms, says_when, only_asks, text_hash
    )
    select
        k.id, (i).id, (i).org_id, (i).user_id, (i).client_id, (i).deal_id, (i).agent_ids, (i).state, (i).kind,
        engine.sequence_of(i), coalesce((i).conversation_position, k.position), engine.tokeniser_version(), w.length,
        w.terms, w.says_when, w.only_asks, w.text_hash
    from almagest.chunks as k
    cross join (select engine.tags_of((i).id) as tags offset 0) as tagged -- read once
    cross join lateral engine.words_of((i).title, tagged.tags, k.heading_path, k.text) as w
    where k.item_id = (i).id and k.version = (i).version
    on conflict (chunk_id) do update set
        tokeniser = excluded.tokeniser, length = excluded.length, terms = excluded.terms,
        says_when = excluded.says_when, only_asks = excluded.only_asks, text_hash = excluded.text_hash
$$;

-- Copies who may see an item, and its state, to the rows that search reads. What an edit has replaced stays replaced.
create or replace function engine.refresh_visibility(i almagest.items)
returns void language sql as $$
    update almagest.lexical as l
    set client_id = (i).client_id, deal_id = (i).deal_id, agent_ids = (i).agent_ids,
        state = case l.state when 'replaced' then l.state else (i).state end,
        sequence = case l.state when 'replaced' then l.sequence else engine.sequence_of(i) end
    where l.item_id = (i).id;
    update almagest.embeddings as e
    set client_id = (i).client_id, deal_id = (i).deal_id, agent_ids = (i).agent_ids,
        state = case e.state when 'replaced' then e.state else (i).state end
    where e.item_id = (i).id;
$$;

-- Which state the rows of a chunk have: the item's, or replaced where an edit has followed; only then is it looked up.
create or replace function engine.state_of_copy(i almagest.items, chunk bigint)
returns text language sql stable as $$
    select case
        when (i).version > 1 and (select k.version from almagest.chunks as k where k.id = chunk) < (i).version then 'replaced'
        else (i).state
    end
$$;

-- Copies all of it anew for up to so many items whose rows differ, whatever they say; returns of how many items.
create or replace function engine.mend_copies(most int)
returns int language plpgsql as $$
declare
    i almagest.items;
    mended int := 0;
begin
    for i in
        select it.* from almagest.items as it
        where it.id in (select distinct d.item_id from engine.copies_that_differ() as d limit most)
        for no key update
    loop
        update almagest.lexical as l
        set org_id = i.org_id, user_id = i.user_id, client_id = i.client_id, deal_id = i.deal_id, agent_ids = i.agent_ids,
            state = engine.state_of_copy(i, l.chunk_id)
        where l.item_id = i.id;
        update almagest.embeddings as e
        set org_id = i.org_id, user_id = i.user_id, client_id = i.client_id, deal_id = i.deal_id, agent_ids = i.agent_ids,
            state = engine.state_of_copy(i, e.chunk_id)
        where e.item_id = i.id;
        perform engine.refresh_visibility(i);
        mended := mended + 1;
    end loop;
    return mended;
end
$$;

-- Puts an item's chunks aside after an edit, for searches of the time before: in state replaced, which no everyday
-- search asks for. A message has a sequence of its own then, so that it is nobody's neighbour.
create or replace function engine.retire_chunks(old almagest.items)
returns void language sql as $$
    update almagest.lexical as l
    set state = 'replaced', sequence = case
        when l.sequence = l.item_id then l.item_id else md5((old).id::text || '/' || (old).version)::uuid
    end
    where l.item_id = (old).id and l.state <> 'replaced';
    update almagest.embeddings as e set state = 'replaced' where e.item_id = (old).id and e.state <> 'replaced';
$$;

-- Gives the version of an item that followed old the same chunks, with the vectors that they have.
create or replace function engine.copy_chunks(i almagest.items, old almagest.items)
returns void language sql as $$
    insert into almagest.chunks (
        item_id, org_id, user_id, version, since_version, position, start_offset, end_offset, heading_path, text
    )
    select
        k.item_id, k.org_id, k.user_id, (i).version, (i).version, k.position, k.start_offset, k.end_offset, k.heading_path,
        k.text
    from almagest.chunks as k
    where k.item_id = (i).id and k.version = (old).version;
    insert into almagest.embeddings (
        chunk_id, model_id, item_id, org_id, user_id, client_id, deal_id, agent_ids, state, vector
    )
    select
        k.id, e.model_id, (i).id, (i).org_id, (i).user_id, (i).client_id, (i).deal_id, (i).agent_ids, (i).state, e.vector
    from almagest.chunks as k
    join almagest.chunks as before
    on before.item_id = k.item_id and before.version = (old).version and before.position = k.position
    join almagest.embeddings as e on e.chunk_id = before.id
    where k.item_id = (i).id and k.version = (i).version;
    select engine.refresh_lexical(i);
$$;

-- chunks: [{position, start, end, text, heading_path or null, embedding: "[…]" or null}]
-- model: the name of what made the embeddings
-- Replaces all chunks of the current version of an item and returns the index status that follows: search_ready where
-- every chunk has its vector, text_ready where one has not, pending where there are no chunks yet.
create or replace function engine.replace_chunks(i almagest.items, chunks jsonb, model text)
returns text language plpgsql as $$
declare
    vectors int;
    -- new slices say the same as those that they replace
    since int := coalesce((
        select min(k.since_version) from almagest.chunks as k where k.item_id = (i).id and k.version = (i).version
    ), (i).version);
begin
    delete from almagest.chunks as k where k.item_id = (i).id and k.version = (i).version;
    insert into almagest.chunks (
        item_id, org_id, user_id, version, since_version, position, start_offset, end_offset, heading_path, text
    )
    select
        (i).id, (i).org_id, (i).user_id, (i).version, since, r.position, r.start, r."end", r.heading_path, r.text
    from jsonb_to_recordset(chunks) as r (position int, start int, "end" int, heading_path text, text text);
    perform engine.refresh_lexical(i);

    insert into almagest.embeddings (
        chunk_id, model_id, item_id, org_id, user_id, client_id, deal_id, agent_ids, state, vector
    )
    select
        k.id, engine.register_model(model), (i).id, (i).org_id, (i).user_id, (i).client_id, (i).deal_id, (i).agent_ids,
        (i).state, engine.parse_vector(r.embedding)
    from jsonb_to_recordset(chunks) as r (position int, embedding text)
    join almagest.chunks as k
    on k.item_id = (i).id and k.version = (i).version and k.position = r.position
    where r.embedding is not null;
    get diagnostics vectors = row_count;
    return case coalesce(jsonb_array_length(chunks), 0)
        when 0 then 'pending'
        when vectors then 'search_ready'
        else 'text_ready'
    end;
end
$$;
