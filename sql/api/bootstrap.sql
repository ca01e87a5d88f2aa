-- What a session starts from: canon whole, a table of contents and, with a query, what search finds.
--   request  {query, embedding, model, degraded_reason, k, titles, request_id}
--   returns  {canon: [{id, kind, type, title, content, pinned, private}], contents: {types: [{type, count}],
--            items: [{id, kind, type, scope, title}]}, search: the answer of api.search or null, trace_id}
create or replace function api.bootstrap(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    c engine.caller := engine.enter(caller);
    found jsonb := case
        when request ->> 'query' is not null
            then engine.search(c, jsonb_build_object('profile', 'injection') || request, 'bootstrap')
    end;
begin
    return jsonb_build_object(
        'canon', engine.read_canon(c),
        'contents', engine.read_contents(c, coalesce((request ->> 'titles')::int, 20)),
        'search', found,
        'trace_id', coalesce(
            found -> 'trace_id',
            to_jsonb(engine.record_retrieval(c, 'bootstrap', request, 'injection', 'lexical', 'no_query', 0, null, '[]', '{}'))
        )
    );
end
$$;
