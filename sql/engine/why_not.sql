-- Why an item is not in an answer: the steps of the search that gave the answer, gone through once more for that item.

-- request         of the search: its why_not is the item asked about
-- mode … k        how the search was made (see engine.search); candidates: what it found, in the order of their places
-- Returns {item, step, reason, and figures}: step is not_found, as_of, state, filters, not_indexed, no_match,
-- candidates, the cut that a candidate suffered, duplicate, diversity, rank or answer. With as_of, all of them are of
-- that time. Of an item that the caller may not see it tells what it tells of one that never was.
create or replace function engine.why_not(
    c engine.caller, request jsonb, mode text, filters jsonb, knobs jsonb, q engine.query_terms,
    query @extschema:vector@.halfvec, model smallint, k int, candidates engine.candidate[]
)
returns jsonb language plpgsql stable as $$
declare
    item uuid := (request ->> 'why_not')::uuid;
    as_of timestamptz := (request ->> 'as_of')::timestamptz;
    i almagest.items;
    was record;
    chunk_ids bigint[];     -- of the version that counts
begin
    select it.* into i from almagest.items as it where it.id = item and engine.readable(c, it);
    if i.id is null or not engine.is_readable(i.id) then
        return jsonb_build_object('item', item, 'step', 'not_found', 'reason', 'There is no such item.');
    end if;
    was := engine.judge_item(c, i.id, filters, as_of);
    chunk_ids := array(
        select k.id from almagest.chunks as k where k.item_id = i.id and was.version between k.since_version and k.version
    );
    return jsonb_build_object('item', item) || coalesce(
        engine.why_not_chosen(i, knobs, k, candidates),
        engine.why_not_searched(
            was.there, was.state, engine.asked_states(request), was.failed, chunk_ids, as_of is not null
        ),
        engine.why_not_twin(chunk_ids, candidates),
        engine.why_not_found(c, request ->> 'query', chunk_ids, mode, knobs, q, query, model)
    );
end
$$;

-- Whether the search looked at an item at all: {step, reason}; null where it did.
--   there … failed   as engine.judge_item tells them; states: those asked for
--   chunk_ids        of the version that counts
create or replace function engine.why_not_searched(
    there boolean, state text, states text[], failed text[], chunk_ids bigint[], past boolean
)
returns jsonb language plpgsql immutable as $$
begin
    return case
        when not there then jsonb_build_object('step', 'as_of', 'reason', 'It was not there yet at that time.')
        when state <> all(states) then jsonb_build_object(
            'step', 'state', 'reason', format(case when past then 'It was %s then.' else 'It is %s.' end, state),
            'state', state
        )
        when failed <> '{}' then jsonb_build_object(
            'step', 'filters', 'reason', format(
                case when past then 'What it was then does not pass the %s %s.' else 'It does not pass the %s %s.' end,
                case cardinality(failed) when 1 then 'filter' else 'filters' end, array_to_string(failed, ', ')
            ),
            'filters', to_jsonb(failed)
        )
        when chunk_ids = '{}' then jsonb_build_object(
            'step', 'not_indexed', 'reason',
            case when past then 'Its text of that time is not indexed.' else 'Its text is not indexed yet.' end
        )
    end;
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

-- Of chunks that never became candidates since a leg sends each text once: {step, reason, twin}; null where none of the
-- candidates has a text of theirs.
create or replace function engine.why_not_twin(chunk_ids bigint[], candidates engine.candidate[])
returns jsonb language plpgsql stable as $$
begin
    return (
        select jsonb_build_object(
            'step', 'duplicate', 'reason', 'Another item of the answer says the same.', 'twin', r.item_id
        )
        from almagest.lexical as its
        join almagest.lexical as theirs on theirs.text_hash = its.text_hash
        join unnest(candidates) as r on r.chunk_id = theirs.chunk_id
        where its.chunk_id in (select unnest(chunk_ids)) and r.cut is null
        order by r.place
        limit 1
    );
end
$$;

-- Why the legs did not send an item whose chunks they looked at: {step, reason, matched: terms, similarity}.
create or replace function engine.why_not_found(
    c engine.caller, asked text, chunk_ids bigint[], mode text, knobs jsonb, q engine.query_terms,
    query @extschema:vector@.halfvec, model smallint
)
returns jsonb language plpgsql stable as $$
declare
    threshold float8 := (knobs ->> 'vector_threshold')::float8;
    matched text[] := array(
        select t.term
        from unnest((q).terms, (q).queries) as t (term, query)
        where mode <> 'vector' and exists (
            select from almagest.lexical as l
            where l.chunk_id in (select unnest(chunk_ids)) and l.terms @@ t.query
        )
    );
    similarity float8 := (
        select max(1 - (e.vector operator(@extschema:vector@.<=>) query))
        from almagest.embeddings as e
        where e.chunk_id in (select unnest(chunk_ids)) and e.model_id = model and mode in ('hybrid', 'vector')
    );
begin
    return jsonb_build_object(
        'matched', to_jsonb(matched), 'similarity', round(similarity::numeric, 4)
    ) || case
        when mode = 'substring' and not exists (
            select from engine.substring_leg(c, asked, '{active,archived,revoked,replaced}', chunk_ids, 1)
        ) then jsonb_build_object(
            'step', 'no_match', 'reason', 'Neither the query as it stands nor half of its words is in it.'
        )
        when mode <> 'substring' and matched = '{}' and coalesce(similarity < threshold, true) then jsonb_build_object(
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
            'step', 'candidates', 'reason', 'It matches, but others so much better that it was not weighed.'
        )
    end;
end
$$;
