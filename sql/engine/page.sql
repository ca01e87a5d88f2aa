-- Paging: the trace of a search keeps its candidates in their final order, and a cursor is a place in it. So a page
-- costs no search, and what was shown is not shown again, whatever was written meanwhile.

-- A cursor: the trace's id and how many of its candidates have been passed, as 27 characters that may stand in a URL.
create or replace function engine.page_cursor(trace uuid, passed int)
returns text language sql immutable parallel safe as $$
    select translate(rtrim(encode(uuid_send(trace) || int4send(passed), 'base64'), '='), '+/', '-_')
$$;

-- The way back; both null for what is no cursor.
create or replace function engine.parse_cursor(cursor text, out trace uuid, out passed int)
language plpgsql immutable parallel safe as $$
declare
    bytes bytea;
begin
    if cursor ~ '^[A-Za-z0-9_-]{27}$' then
        bytes := decode(translate(cursor, '-_', '+/') || '=', 'base64');
        trace := encode(substr(bytes, 1, 16), 'hex')::uuid;
        passed := ('x' || encode(substr(bytes, 17, 4), 'hex'))::bit(32)::int;
    end if;
end
$$;

-- The cursor behind an answer: null where nothing follows, or where there is no trace to go on from.
create or replace function engine.cursor_after(trace_id uuid, candidates jsonb, passed int)
returns text language plpgsql immutable parallel safe as $$
begin
    return case
        when candidates -> passed is not null and candidates -> passed ->> 'cut' is null
            then engine.page_cursor(trace_id, passed)
    end;
end
$$;

-- The next k results behind a cursor of a search of the caller's own; 422 invalid_cursor for any other, and for one
-- whose trace has gone. What was archived, erased, edited or hidden from the caller meanwhile is left out.
--   request  {query?}, which must be that of the search; where an erasure has taken that out of the trace, no query can
--            be known to be it, and only a request without one goes on
-- Returns {mode, degraded_reason, results, trace_id, next_cursor}.
create or replace function engine.next_page(c engine.caller, cursor text, k int, request jsonb)
returns jsonb language plpgsql as $$
declare
    at record := engine.parse_cursor(cursor);
    searched almagest.retrievals;
    as_of timestamptz;
    states text[];
    page engine.candidate[];
    places int[];
    results jsonb;
begin
    select r.* into searched
    from almagest.retrievals as r
    where r.id = at.trace and r.purpose = 'search' and r.org_id = (c).org_id
        and r.user_id is not distinct from (c).user_id and r.agent_id is not distinct from (c).agent_id;
    if searched.id is null
        or (at.passed between 1 and jsonb_array_length(searched.trace -> 'candidates')) is not true
        or (request ->> 'query' is null or left(request ->> 'query', 1000) = searched.query) is not true
    then
        perform engine.field_problem(
            'invalid_cursor', 'cursor', 'must be the next_cursor of an answer to you that has not expired',
            'The cursor is none that you were given, or has expired.'
        );
    end if;
    as_of := (searched.trace ->> 'as_of')::timestamptz;
    states := engine.asked_states(searched.trace);

    -- one more than are shown, to know whether any follow
    select array_agg(n.candidate order by n.place), array_agg(n.place order by n.place) into page, places
    from (
        select
            e.place, jsonb_populate_record(
                null::engine.candidate, e.one || jsonb_build_object(
                    'chunk_id', e.one -> 'chunk', 'item_id', e.one -> 'item', 'place', e.place
                )
            ) as candidate
        from jsonb_array_elements(searched.trace -> 'candidates') with ordinality as e (one, place)
        join almagest.items as i on i.id = (e.one ->> 'item')::uuid
        join almagest.chunks as s on s.id = (e.one ->> 'chunk')::bigint
        where e.place > at.passed and e.one ->> 'cut' is null and engine.readable(c, i)
            and (as_of is not null or (i.state = any(states) and i.version between s.since_version and s.version))
        order by e.place
        limit k + 1
    ) as n;
    results := engine.read_results(
        page[:k], array(
            select jsonb_array_elements_text(searched.trace -> 'terms')
            where jsonb_typeof(searched.trace -> 'terms') = 'array'
        ), as_of
    );
    perform engine.record_page(c, searched, results, at.passed);
    return jsonb_build_object(
        'mode', searched.mode, 'degraded_reason', searched.degraded_reason, 'results', results,
        'trace_id', searched.id,
        'next_cursor', case when cardinality(places) > k then engine.page_cursor(searched.id, places[k]) end
    );
end
$$;

-- That a page surfaced its items; like a trace, never a reason for a page to fail.
create or replace function engine.record_page(
    c engine.caller, searched almagest.retrievals, results jsonb, passed int
)
returns void language plpgsql as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    insert into almagest.activations (org_id, user_id, item_id, retrieval_id, use, rank, profile)
    select
        (c).org_id, (c).user_id, (r ->> 'id')::uuid, (searched).id, 'surfaced', passed + place, (searched).profile
    from jsonb_array_elements(results) with ordinality as result (r, place);
exception when others then
    raise warning 'page not recorded: %', sqlstate;
end
$$;
