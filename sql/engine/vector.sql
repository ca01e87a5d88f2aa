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

-- query       of unit length or not: cosine
-- within      only these chunks, or null for all
-- size        how many chunks the caller may search, about
-- threshold   weakest similarity that enters, 0..1
-- Returns the nearest chunks that the caller may see: similarity 0..1, higher is better. Among many chunks the index
-- scan goes on until enough rows have passed the filters (iterative scan). Few are compared one by one: that misses
-- nothing, and takes less time than the index, which has to pass over the rows of others.
create or replace function engine.vector_leg(
    c engine.caller, query @extschema:vector@.halfvec, model smallint, states text[], within bigint[], size float8,
    threshold float8, candidates int
)
returns table (chunk_id bigint, similarity float8)
language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
    few constant int := 5000;
begin
    if least(cardinality(within), size) <= few then
        return query
        select compared.chunk_id, compared.similarity
        from (
            select e.chunk_id, 1::float8 - (e.vector operator(@extschema:vector@.<=>) query) as similarity
            from almagest.embeddings as e
            where (within is null or e.chunk_id = any(within)) and e.model_id = model
                and engine.visible(c, e.org_id, e.user_id, e.client_id, e.deal_id, e.agent_ids)
                and e.state = any(states)
            offset 0 -- no nearest-neighbour index for these
        ) as compared
        where compared.similarity >= threshold
        order by compared.similarity desc, compared.chunk_id desc
        limit candidates;
    else
        return query
        select nearest.chunk_id, 1::float8 - nearest.distance
        from (
            select e.chunk_id, e.vector operator(@extschema:vector@.<=>) query as distance
            from almagest.embeddings as e
            where (within is null or e.chunk_id = any(within)) and e.model_id = model
                and engine.visible(c, e.org_id, e.user_id, e.client_id, e.deal_id, e.agent_ids)
                and e.state = any(states)
            order by e.vector operator(@extschema:vector@.<=>) query
            limit candidates
        ) as nearest
        where 1::float8 - nearest.distance >= threshold
        order by nearest.distance, nearest.chunk_id desc;
    end if;
end
$$;
