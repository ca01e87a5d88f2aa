-- Ends a membership, with the person's keys and scopes. What they wrote stays; their private items stay private.
--   request  {org, member: id or e-mail}
--   returns  {user_id, removed: true}
--   errors   403 forbidden (owners are removed by owners), 404 unknown_member, 409 last_owner
create or replace function api.remove_member(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
    member uuid := engine.member_id(org, coalesce(request ->> 'member', ''));
begin
    if exists (select from almagest.members as m where m.org_id = org and m.user_id = member and m.role = 'owner') then
        perform engine.demand_owner(caller);
    end if;
    perform engine.demand_another_owner(org, member);
    delete from almagest.members as m where m.org_id = org and m.user_id = member;
    return jsonb_build_object('user_id', member, 'removed', true);
end
$$;
