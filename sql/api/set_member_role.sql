-- Gives a member, and with them their keys, another role.
--   request  {org, member: id or e-mail, role}
--   returns  {user_id, role}
--   errors   403 forbidden (owners are made and unmade by owners), 404 unknown_member, 409 last_owner
create or replace function api.set_member_role(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
    member uuid := engine.member_id(org, coalesce(request ->> 'member', ''));
begin
    if request ->> 'role' = 'owner'
        or exists (select from almagest.members as m where m.org_id = org and m.user_id = member and m.role = 'owner')
    then
        perform engine.demand_owner(caller);
    end if;
    if request ->> 'role' <> 'owner' then
        perform engine.demand_another_owner(org, member);
    end if;
    update almagest.members as m set role = request ->> 'role' where m.org_id = org and m.user_id = member;
    update almagest.api_keys as k set role = request ->> 'role'
    where k.org_id = org and k.user_id = member and k.agent_id is null;
    return jsonb_build_object('user_id', member, 'role', request ->> 'role');
end
$$;
