-- How far indexing is, of the items that the caller may see.
--   request  {}
--   returns  {pending, indexing, failed}; pending counts what is found by its words and waits for its vectors
create or replace function api.index_status(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    c engine.caller := engine.enter(caller);
begin
    return engine.read_index_status(c);
end
$$;
