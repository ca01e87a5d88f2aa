-- Adds a person to an org.
--   request  {org, user_id, email, name, role}; user_id: of the Supabase user, or left out
--   returns  {user_id, role, email, name}
--   errors   403 forbidden (owners are made by owners), 404 unknown_org, 409 member_exists
create or replace function api.add_member(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
    m almagest.members;
begin
    if request ->> 'role' = 'owner' then
        perform engine.demand_owner(caller);
    end if;
    insert into almagest.members (org_id, user_id, role, email, name) values (
        org, coalesce((request ->> 'user_id')::uuid, gen_random_uuid()), coalesce(request ->> 'role', 'member'),
        request ->> 'email', request ->> 'name'
    )
    on conflict do nothing
    returning * into m;
    if m.user_id is null then
        perform engine.problem(409, 'member_exists', 'This person is a member already.');
    end if;
    return jsonb_build_object('user_id', m.user_id, 'role', m.role, 'email', m.email, 'name', m.name);
end
$$;
