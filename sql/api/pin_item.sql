-- Makes an item canon: in the prefix of every run, whole. A private pin is in the person's own runs only. What enters
-- a prefix speaks as its owner, so nobody pins what somebody else could then rewrite: people pin privately what is
-- private to them, and agents pin nothing.
--   request  {id, position, private, idempotency}
--   returns  {id, pinned: true}
--   errors   404 not_found, 403 forbidden (shared pins are for owners and admins, private ones for one's own private
--            items), 422 cannot_be_private, 422 not_active
create or replace function api.pin_item(caller jsonb, request jsonb)
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
    if i.state <> 'active' then
        perform engine.problem(422, 'not_active', format('An item that is %s cannot be pinned.', i.state));
    end if;
    if private and (c).user_id is null then
        perform engine.problem(422, 'cannot_be_private', 'This key belongs to no person, so it cannot pin privately.');
    end if;
    if not private then
        perform engine.demand_manager(c);
    elsif (c).agent_id is not null or i.user_id is distinct from (c).user_id then
        perform engine.problem(403, 'forbidden', 'People pin privately what is private to them; agents pin nothing.');
    end if;
    insert into almagest.pins (org_id, user_id, item_id, position)
    values ((c).org_id, case when private then (c).user_id end, i.id, coalesce((request ->> 'position')::int, 0))
    on conflict (org_id, user_id, item_id) do update set position = excluded.position;
    perform engine.audit(c, i, 'pinned', jsonb_build_object('private', private));
    return engine.remember_answer(c, request, jsonb_build_object('id', i.id, 'pinned', true));
end
$$;
