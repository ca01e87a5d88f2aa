-- Takes an item out of the prefix: the person's own pin with private, else the shared one.
--   request  {id, private, idempotency}
--   returns  {id, pinned: false}
--   errors   404 not_found, 403 forbidden (shared pins are for owners and admins)
create or replace function api.unpin_item(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    c engine.caller := engine.enter(caller);
    answer jsonb := engine.recall_answer(c, request);
    private boolean := coalesce((request ->> 'private')::boolean, false);
    i almagest.items;
begin
    if answer is not null then
        return answer;
    end if;
    i := engine.lock_item(c, (request ->> 'id')::uuid);
    if not private then
        perform engine.demand_manager(c);
    end if;
    delete from almagest.pins as p
    where p.item_id = i.id and p.user_id is not distinct from case when private then (c).user_id end
        and (not private or (c).user_id is not null);
    perform engine.audit(c, i, 'unpinned', jsonb_build_object('private', private));
    return engine.remember_answer(c, request, jsonb_build_object('id', i.id, 'pinned', false));
end
$$;
