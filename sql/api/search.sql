-- Searches by words and meaning, and records how it answered.
--   request  {query, embedding: '[…]' or null, model, degraded_reason, k, profile, filters, include_archived, explain,
--            why_not: item or null, request_id}; filters as in engine.matching_items
--   returns  {mode, degraded_reason, results: [{id, kind, type, title, snippet, source_ref, metadata, tags, agent_name,
--            conversation, created_at, relevance, scores: {hybrid, vector, keyword, metadata, strength, final}}],
--            trace_id, explain}; with why_not, explain.why_not: {item, step, reason, …} as engine.why_not tells it
--   errors   422 unknown_profile, invalid_vector
create or replace function api.search(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
begin
    return engine.search(engine.enter(caller), request, 'search');
end
$$;
