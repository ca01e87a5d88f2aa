-- One item, whole; that it was opened is recorded.
--   request  {id}
--   returns  the item
--   errors   404 not_found, the same for an item that is not there and for one that the caller may not see
create or replace function api.get_item(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    c engine.caller := engine.enter(caller);
    item jsonb := engine.read_item((request ->> 'id')::uuid);
begin
    if item is null then
        perform engine.problem(404, 'not_found', 'There is no such item.');
    end if;
    perform set_config('synchronous_commit', 'off', true);
    insert into almagest.activations (org_id, user_id, item_id, use)
    values ((c).org_id, (c).user_id, (request ->> 'id')::uuid, 'opened');
    return item;
end
$$;
