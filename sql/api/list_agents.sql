-- The agents of an org.
--   request  {org}
--   returns  {agents: [{id, slug, name, created_at}]}
--   errors   403 forbidden, 404 unknown_org
create or replace function api.list_agents(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
begin
    return jsonb_build_object('agents', (
        select coalesce(jsonb_agg(jsonb_build_object(
            'id', t.id, 'slug', t.slug, 'name', t.name, 'created_at', t.created_at
        ) order by t.slug), '[]')
        from almagest.agents as t where t.org_id = org
    ));
end
$$;
