-- Takes an org's own knobs out of a search profile: a built-in one is as it was, another one is gone.
--   request  {org, name}
--   returns  {name, built_in}
--   errors   403 forbidden, 404 unknown_org, unknown_profile
create or replace function api.delete_profile(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
    profile jsonb := engine.demand_profile(org, request ->> 'name');
begin
    delete from almagest.search_profiles as p where p.org_id = org and p.name = request ->> 'name';
    if found then
        perform engine.audit_profile(caller, org, request ->> 'name', 'profile_reset', profile -> 'own');
    end if;
    return jsonb_build_object('name', profile -> 'name', 'built_in', profile -> 'built_in');
end
$$;
