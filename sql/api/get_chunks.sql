-- The chunks of an item, in order, by pages; or one of them with those around it.
--   request  {id, cursor: the last position seen or null, limit: 1..100}, or {id, around: a position, reach: 0..5}
--   returns  {chunks: [{position, start, end, heading_path, text}], next_cursor}; next_cursor is null on the last page,
--            and with around
--   errors   404 not_found, also where there is no chunk at the position
create or replace function api.get_chunks(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    c engine.caller := engine.enter(caller);
    item uuid := (request ->> 'id')::uuid;
    around int := (request ->> 'around')::int;
    reach int := greatest(0, least(5, coalesce((request ->> 'reach')::int, 1)));
    page int := coalesce((request ->> 'limit')::int, 100);
    chunks jsonb;
begin
    if engine.read_item(c, item) is null then
        perform engine.problem(404, 'not_found', 'There is no such item.');
    end if;
    if around is not null then
        chunks := engine.read_chunks(c, item, around - reach - 1, least(around, reach) + 1 + reach);
        if not chunks @> jsonb_build_array(jsonb_build_object('position', around)) then
            perform engine.problem(404, 'not_found', 'The item has no chunk at this position.');
        end if;
        return jsonb_build_object('chunks', chunks, 'next_cursor', null);
    end if;
    chunks := engine.read_chunks(c, item, coalesce((request ->> 'cursor')::int, -1), page + 1);
    return case
        when jsonb_array_length(chunks) > page then
            jsonb_build_object('chunks', chunks - page, 'next_cursor', (chunks -> (page - 1) ->> 'position'))
        else jsonb_build_object('chunks', chunks, 'next_cursor', null)
    end;
end
$$;
