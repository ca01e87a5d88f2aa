-- One item, whole; that it was opened is recorded, unless it was only looked up for an edit.
--   request  {id, record: true where it is left out}
--   returns  the item
--   errors   404 not_found, the same for an item that is not there and for one that the caller may not see
create or replace function api.get_item(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    c engine.caller := engine.enter(caller);
    item jsonb := engine.read_item(c, (request ->> 'id')::uuid);
begin
    if item is null then
        perform engine.problem(404, 'not_found', 'There is no such item.');
    end if;
    if coalesce((request ->> 'record')::boolean, true) then
        perform engine.record_opening(c, (request ->> 'id')::uuid);
    end if;
    return item;
end
$$;
