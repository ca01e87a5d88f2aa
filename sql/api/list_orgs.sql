-- All orgs but the health checks' own, for the system (caller null) alone.
--   request  {}
--   returns  {orgs: [{id, slug, name, created_at}]}
--   errors   403 forbidden
create or replace function api.list_orgs(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
begin
    if caller is not null then
        perform engine.problem(403, 'forbidden', 'The list of orgs is for the operator of the system.');
    end if;
    return jsonb_build_object('orgs', (
        select coalesce(jsonb_agg(jsonb_build_object(
            'id', o.id, 'slug', o.slug, 'name', o.name, 'created_at', o.created_at
        ) order by o.slug), '[]')
        from almagest.orgs as o
        where not o.is_system
    ));
end
$$;
