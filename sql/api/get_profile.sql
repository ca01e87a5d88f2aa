-- One search profile, for owners and admins.
--   request  {org, name}
--   returns  {name, description, built_in, own: what the org has set or null, updated_at, knobs: what counts, with
--            modes, definitions: [{knob, kind, minimum, maximum, choices, description}]}
--   errors   403 forbidden, 404 unknown_org, unknown_profile
create or replace function api.get_profile(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
begin
    return engine.demand_profile(org, request ->> 'name') || jsonb_build_object(
        'definitions', (select jsonb_agg(to_jsonb(d)) from engine.knob_definitions() as d)
    );
end
$$;
