-- Searches by words and meaning, and records how it answered; or goes on with an earlier answer.
--   request  {query, embedding: '[…]' or null, model, degraded_reason, k, profile, filters, as_of, include_archived,
--            legs: [keyword, vector], level: item or chunk, explain, why_not: item or null, request_id}; filters as
--            in engine/filters.sql; or {cursor, k, query?}
--   returns  {mode, degraded_reason, results: [{id, kind, type, title, version, chunk: {position, start, end,
--            heading_path}, snippet, marks: [[start, end]], source_ref, metadata, tags, agent_name, conversation,
--            created_at, relevance, scores: {hybrid, vector, keyword, metadata, strength, final}}], trace_id,
--            next_cursor, explain}; with why_not, explain.why_not: {item, step, reason, …} as engine.why_not tells it
--   errors   422 unknown_profile, unknown_filter, invalid_vector, invalid_cursor
create or replace function api.search(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    c engine.caller := engine.enter(caller);
begin
    if request ->> 'cursor' is not null then
        return engine.next_page(c, request ->> 'cursor', coalesce((request ->> 'k')::int, 10), request);
    end if;
    return engine.search(c, request, 'search');
end
$$;
