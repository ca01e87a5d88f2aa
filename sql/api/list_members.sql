-- The people of an org.
--   request  {org}
--   returns  {members: [{user_id, role, email, name, created_at, used_today: requests with a user's token}]}
--   errors   403 forbidden, 404 unknown_org
create or replace function api.list_members(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
begin
    return jsonb_build_object('members', (
        select coalesce(jsonb_agg(jsonb_build_object(
            'user_id', m.user_id, 'role', m.role, 'email', m.email, 'name', m.name, 'created_at', m.created_at,
            'used_today', engine.used(org, m.user_id, engine.usage_day())
        ) order by m.created_at, m.user_id), '[]')
        from almagest.members as m where m.org_id = org
    ));
end
$$;
