-- Why an item is not in an answer: the steps of the search that gave the answer, gone through once more for that item.

-- item            asked about
-- mode … k        how the search was made (see engine.search); candidates: what it found, in the order of their places
-- Returns {item, step, reason, and figures}: step is not_found, state, filters, not_indexed, no_match, candidates, the
-- cut that a candidate suffered, duplicate, diversity, rank or answer. Of an item that the caller may not see it tells
-- what it tells of one that never was.
create or replace function engine.why_not(
    c engine.caller, item uuid, mode text, states text[], filters jsonb, within bigint[], knobs jsonb,
    q engine.query_terms, query @extschema:vector@.halfvec, model smallint, k int, candidates engine.candidate[]
)
returns jsonb language plpgsql stable as $$
declare
    i almagest.items;
begin
    select it.* into i from almagest.items as it where it.id = item and engine.readable(c, it);
    if i.id is not null and not engine.is_readable(i.id) then
        i := null;
    end if;
    return jsonb_build_object('item', item) || coalesce(
        engine.why_not_chosen(i, knobs, k, candidates),
        engine.why_not_searched(c, i, states, filters, within),
        engine.why_not_twin(i, candidates),
        engine.why_not_found(i, mode, knobs, q, query, model)
    );
end
$$;

-- Whether the search looked at an item at all: {step, reason}; null where it did.
create or replace function engine.why_not_searched(
    c engine.caller, i almagest.items, states text[], filters jsonb, within bigint[]
)
returns jsonb language plpgsql stable as $$
declare
    failed jsonb;
begin
    if i.id is null then
        return jsonb_build_object('step', 'not_found', 'reason', 'There is no such item.');
    end if;
    if i.state <> all(states) then
        return jsonb_build_object('step', 'state', 'reason', format('It is %s.', i.state), 'state', i.state);
    end if;
    select jsonb_agg(f.key order by f.key) into failed
    from jsonb_each(filters) as f
    where i.id not in (select engine.matching_items(c, jsonb_build_object(f.key, f.value)));
    if failed is not null then
        return jsonb_build_object('step', 'filters', 'reason', format('It does not pass %s.', (
            select string_agg(f, ', ') from jsonb_array_elements_text(failed) as f
        )), 'filters', failed);
    end if;
    if not exists (select from almagest.chunks as l where l.item_id = i.id and l.version = i.version) then
        return jsonb_build_object('step', 'not_indexed', 'reason', 'Its text is not indexed yet.');
    end if;
    if not exists (
        select from almagest.chunks as l where l.item_id = i.id and (within is null or l.id in (select unnest(within)))
    ) then
        return jsonb_build_object('step', 'as_of', 'reason', 'It was not there yet, or not active, at that time.');
    end if;
    return null;
end
$$;

-- What became of an item that was a candidate: {step, reason, its scores}; null where it was none.
create or replace function engine.why_not_chosen(i almagest.items, knobs jsonb, k int, candidates engine.candidate[])
returns jsonb language plpgsql stable as $$
declare
    candidate engine.candidate;
    twin uuid;  -- with the same text, and a better place
begin
    select r.* into candidate from unnest(candidates) as r where r.item_id = i.id order by r.place limit 1;
    if not found then
        return null;
    end if;
    select r.item_id into twin
    from unnest(candidates) as r
    join almagest.chunks as theirs on theirs.id = r.chunk_id
    join almagest.chunks as its on its.id = candidate.chunk_id
    where r.cut is null and theirs.text = its.text and candidate.cut = 'duplicate'
    limit 1;
    return jsonb_strip_nulls(jsonb_build_object(
        'keyword', round(candidate.keyword::numeric, 4), 'vector', round(candidate.vector::numeric, 4),
        'metadata', round(candidate.metadata::numeric, 4), 'boosts', candidate.boosts,
        'hybrid', round(candidate.hybrid::numeric, 4), 'strength', round(candidate.strength::numeric, 4),
        'final', round(candidate.final::numeric, 4),
        'place', case when candidate.cut is null and candidate.place <= k then candidate.place end
    )) || case
        when candidate.cut = 'floor' then jsonb_build_object('step', 'floor', 'reason', format(
            'Its fused score is below the floor of %s.', knobs ->> 'fused_floor'
        ))
        when candidate.cut = 'duplicate' then jsonb_build_object(
            'step', 'duplicate', 'reason', 'Another item of the answer says the same.', 'twin', twin
        )
        when candidate.place <= k
            then jsonb_build_object('step', 'answer', 'reason', format('It is result %s.', candidate.place))
        when candidate.rank <= k then jsonb_build_object('step', 'diversity', 'rank', candidate.rank, 'reason', format(
            'It ranks %s, and resembles the results too much.', candidate.rank
        ))
        else jsonb_build_object('step', 'rank', 'rank', candidate.rank, 'reason', format(
            'It ranks %s, and %s were asked for.', candidate.rank, k
        ))
    end;
end
$$;

-- Of an item that never became a candidate since a leg sends each text once: {step, reason, twin}; null where none of
-- the candidates has a text of its.
create or replace function engine.why_not_twin(i almagest.items, candidates engine.candidate[])
returns jsonb language plpgsql stable as $$
begin
    return (
        select jsonb_build_object(
            'step', 'duplicate', 'reason', 'Another item of the answer says the same.', 'twin', r.item_id
        )
        from almagest.lexical as its
        join almagest.lexical as theirs on theirs.text_hash = its.text_hash
        join unnest(candidates) as r on r.chunk_id = theirs.chunk_id
        where its.item_id = i.id and its.state = i.state and r.cut is null
        order by r.place
        limit 1
    );
end
$$;

-- Why the legs did not send an item that they looked at: {step, reason, matched: terms, similarity}.
create or replace function engine.why_not_found(
    i almagest.items, mode text, knobs jsonb, q engine.query_terms, query @extschema:vector@.halfvec, model smallint
)
returns jsonb language plpgsql stable as $$
declare
    threshold float8 := (knobs ->> 'vector_threshold')::float8;
    matched text[] := array(
        select t.term
        from unnest((q).terms, (q).queries) as t (term, query)
        where mode <> 'vector' and exists (
            select from almagest.lexical as l
            where l.item_id = i.id and l.state <> 'replaced' and l.terms @@ t.query
        )
    );
    similarity float8 := (
        select max(1 - (e.vector operator(@extschema:vector@.<=>) query))
        from almagest.embeddings as e
        where e.item_id = i.id and e.model_id = model and e.state <> 'replaced' and mode in ('hybrid', 'vector')
    );
begin
    return jsonb_build_object(
        'matched', to_jsonb(matched), 'similarity', round(similarity::numeric, 4)
    ) || case
        when matched = '{}' and coalesce(similarity < threshold, true) then jsonb_build_object(
            'step', 'no_match', 'reason', concat_ws(
                ' ',
                case when mode <> 'vector' then 'None of the query''s words is in it.' end,
                case
                    when mode not in ('hybrid', 'vector') then 'Its meaning was not compared.'
                    when similarity is null then 'It has no vector to compare.'
                    else format('Its similarity is below the threshold of %s.', threshold)
                end
            )
        )
        else jsonb_build_object(
            'step', 'candidates', 'reason', 'It matches, but others so much better that it was no candidate.'
        )
    end;
end
$$;
