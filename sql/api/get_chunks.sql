-- The chunks of an item, in order, by pages.
--   request  {id, cursor: the last position seen or null, limit: 1..100}
--   returns  {chunks: [{position, start, end, text}], next_cursor}; next_cursor is null on the last page
--   errors   404 not_found
create or replace function api.get_chunks(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    c engine.caller := engine.enter(caller);
    page int := coalesce((request ->> 'limit')::int, 100);
    chunks jsonb;
begin
    if engine.read_item(c, (request ->> 'id')::uuid) is null then
        perform engine.problem(404, 'not_found', 'There is no such item.');
    end if;
    chunks := engine.read_chunks(c, (request ->> 'id')::uuid, coalesce((request ->> 'cursor')::int, -1), page + 1);
    return case
        when jsonb_array_length(chunks) > page then
            jsonb_build_object('chunks', chunks - page, 'next_cursor', (chunks -> (page - 1) ->> 'position'))
        else jsonb_build_object('chunks', chunks, 'next_cursor', null)
    end;
end
$$;
