-- The search profiles of an org, for owners and admins.
--   request  {org}
--   returns  {profiles: [{name, description, built_in, own, updated_at}]}; own: whether the org has knobs of its own
--   errors   403 forbidden, 404 unknown_org
create or replace function api.list_profiles(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
begin
    return jsonb_build_object('profiles', (
        select jsonb_agg(jsonb_build_object(
            'name', n.name, 'description', b.description, 'built_in', b.name is not null, 'own', own.name is not null,
            'updated_at', engine.utc(own.updated_at)
        ) order by n.name)
        from (
            select p.name from engine.built_in_profiles() as p
            union
            select p.name from almagest.search_profiles as p where p.org_id is null or p.org_id = org
        ) as n
        left join engine.built_in_profiles() as b on b.name = n.name
        left join almagest.search_profiles as own on own.org_id = org and own.name = n.name
    ));
end
$$;
