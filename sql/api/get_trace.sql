-- How a search or a context came about; only for the one who asked for it.
--   request  {id}
--   returns  {id, created_at, request_id, purpose, profile, mode, degraded_reason, query, terms, filters, knobs, legs,
--            level, as_of, exact, stages_ms: how long each stage took, found: how many candidates there were,
--            candidates: the best of them, 100 at the most, the answer first [{item, title, chunk, keyword, matched,
--            vector, metadata, boosts, hybrid, relevance, strength, final, cut}], mmr: of each pick in turn [{item,
--            title, rank, similarity to those before}], results: [{item, title}], hidden: how many items are left out,
--            since the caller may not see them any more}; query is cut at 1000 characters, and null once an item that
--            it found was erased
--   errors   404 not_found, also for a trace of somebody else
create or replace function api.get_trace(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    c engine.caller := engine.enter(caller);
    trace jsonb := engine.read_trace(c, (request ->> 'id')::uuid);
begin
    if trace is null then
        perform engine.problem(404, 'not_found', 'There is no such trace.');
    end if;
    return trace;
end
$$;
