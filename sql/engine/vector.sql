-- The vector leg: nearest chunks by cosine.

-- A vector as text ('[0.1,…]') -> halfvec(384); 422 invalid_vector where it has another dimension, a value that is not
-- a number, or no length. Null stays null.
create or replace function engine.parse_vector(literal text)
returns @extschema:vector@.halfvec language plpgsql immutable as $$
declare
    parsed @extschema:vector@.halfvec;
begin
    if literal is null then
        return null;
    end if;
    begin
        parsed := literal::@extschema:vector@.halfvec;
    exception when data_exception or program_limit_exceeded then -- the latter for thousands of dimensions
        perform engine.problem(422, 'invalid_vector', 'The vector holds something that is not a finite number.');
    end;
    if @extschema:vector@.vector_dims(parsed) <> 384 then
        perform engine.problem(422, 'invalid_vector', format(
            'The vector has %s dimensions instead of 384.', @extschema:vector@.vector_dims(parsed)
        ));
    end if;
    if @extschema:vector@.l2_norm(parsed) = 0 then
        perform engine.problem(422, 'invalid_vector', 'The vector is all zeros.');
    end if;
    return parsed;
end
$$;

-- The number of a model by its name; null where nothing was stored with it.
create or replace function engine.model_id(model text)
returns smallint language sql stable as $$
    select m.id from almagest.embedding_models as m where m.name = model
$$;

-- The number of a model, given the next one where it has none yet: without gaps, since the first has an index. To be
-- called before any item is locked: two transactions that name a new model wait for each other here.
create or replace function engine.register_model(model text)
returns smallint language plpgsql as $$
begin
    while engine.model_id(model) is null loop
        insert into almagest.embedding_models (id, name)
        select coalesce(max(m.id), 0) + 1, model from almagest.embedding_models as m
        on conflict do nothing;
    end loop;
    return engine.model_id(model);
end
$$;

-- Up to how many chunks are compared one by one. Among more, the index is quicker; among fewer it has to pass over the
-- rows of others, and finds less: of an org of 20,000 chunks among a million, nine of ten.
create or replace function engine.few_chunks()
returns int language sql immutable parallel safe as $$ select 25000 $$;

-- The nearest chunks that the caller may see, as distances of cosine.
--   within  only these chunks, or null for all
--   few     whether they are compared one by one, which misses nothing; otherwise the index scan goes on until enough
--           rows have passed the filters (iterative scan)
create or replace function engine.nearest_chunks(
    c engine.caller, query @extschema:vector@.halfvec, model smallint, states text[], within bigint[], few boolean,
    depth int
)
returns table (chunk_id bigint, distance float8)
language plpgsql stable set plan_cache_mode = force_custom_plan as $$
begin
    if few then
        return query
        select compared.chunk_id, compared.distance
        from (
            select e.chunk_id, e.vector operator(@extschema:vector@.<=>) query as distance
            from almagest.embeddings as e
            where (within is null or e.chunk_id = any(within)) and e.model_id = model
                and engine.visible(c, e.org_id, e.user_id, e.client_id, e.deal_id, e.agent_ids)
                and e.state = any(states)
            offset 0 -- no nearest-neighbour index for these
        ) as compared
        order by compared.distance, compared.chunk_id desc
        limit depth;
    else
        return query
        select nearest.chunk_id, nearest.distance
        from (
            select e.chunk_id, e.vector operator(@extschema:vector@.<=>) query as distance
            from almagest.embeddings as e
            where (within is null or e.chunk_id = any(within)) and e.model_id = model
                and engine.visible(c, e.org_id, e.user_id, e.client_id, e.deal_id, e.agent_ids)
                and e.state = any(states)
            order by e.vector operator(@extschema:vector@.<=>) query
            limit depth
        ) as nearest
        order by nearest.distance, nearest.chunk_id desc;
    end if;
end
$$;

-- query       of unit length or not: cosine
-- within      only these chunks, or null for all
-- by_chunk    whether an item may come by several of its chunks; a text comes once, the caller's own before a shared
--             one
-- size        how many chunks the caller may search, about
-- threshold   weakest similarity that enters, 0..1
-- Returns the nearest chunks that the caller may see: similarity 0..1, higher is better.
create or replace function engine.vector_leg(
    c engine.caller, query @extschema:vector@.halfvec, model smallint, states text[], within bigint[],
    by_chunk boolean, size float8, threshold float8, candidates int
)
returns table (chunk_id bigint, similarity float8)
language plpgsql stable set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    few boolean := least(cardinality(within), size) <= engine.few_chunks();
    depth int := candidates;
    chunk_ids bigint[];
    distances float8[];
    different bigint;   -- items or texts, whichever are fewer
begin
    loop
        select array_agg(n.chunk_id), array_agg(n.distance) into chunk_ids, distances
        from engine.nearest_chunks(c, query, model, states, within, few, depth) as n
        where 1::float8 - n.distance >= threshold;
        select least(count(distinct k.item_id), count(distinct l.text_hash) + count(*) filter (where l.text_hash is null))
        into different
        from unnest(chunk_ids) as n (chunk_id)
        join almagest.chunks as k on k.id = n.chunk_id
        left join almagest.lexical as l on l.chunk_id = n.chunk_id;
        -- half of them are enough to rank; where one document or text fills the pool, there may be more behind it
        exit when different * 2 >= candidates or by_chunk or depth >= 5000 or coalesce(cardinality(chunk_ids), 0) < depth;
        depth := depth * 16;
    end loop;

    if depth = candidates then
        return query select n.id, 1::float8 - n.distance from unnest(chunk_ids, distances) as n (id, distance);
        return;
    end if;
    return query
    select i.chunk_id, 1::float8 - i.distance
    from (
        select distinct on (f.item_id) f.chunk_id, f.distance
        from (
            select distinct on (coalesce(l.text_hash, n.chunk_id)) n.chunk_id, n.distance, k.item_id
            from unnest(chunk_ids, distances) as n (chunk_id, distance)
            join almagest.chunks as k on k.id = n.chunk_id
            left join almagest.lexical as l on l.chunk_id = n.chunk_id
            order by coalesce(l.text_hash, n.chunk_id), n.distance, k.user_id nulls last, n.chunk_id desc
        ) as f
        order by f.item_id, f.distance, f.chunk_id desc
    ) as i
    order by i.distance, i.chunk_id desc
    limit candidates;
end
$$;
