-- Sets an org's own knobs in a search profile, in place of those it had; a new name makes a new profile. The next
-- search uses them.
--   request  {org, name, knobs: {knob: value, modes: {hybrid, vector, lexical or substring: {knob: value}}}}; the knobs
--            are those of engine.knob_definitions, and numbers that they allow are kept to six decimals
--   returns  the profile, as get_profile but for the definitions; or {problem: 422 invalid_knobs {errors: [{field,
--            message}]}}, where nothing is set
--   errors   403 forbidden, 404 unknown_org, 422 invalid_name
create or replace function api.put_profile(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
    profile text := request ->> 'name';
    knobs jsonb;
    problem jsonb;
begin
    if profile !~ '^[a-z][a-z0-9_]{0,62}$' then
        perform engine.field_problem(
            'invalid_name', 'name', 'must have 1 to 63 lower case letters, digits or _, and start with a letter',
            'A profile''s name has 1 to 63 lower case letters, digits or _, and starts with a letter.'
        );
    end if;
    problem := engine.knob_problem(
        request -> 'knobs', coalesce(engine.profile_knobs(null, profile), engine.default_knobs())
    );
    if problem is not null then
        return jsonb_build_object('problem', problem);
    end if;
    knobs := engine.round_knobs(request -> 'knobs');
    insert into almagest.search_profiles (org_id, name, knobs) values (org, profile, knobs)
    on conflict (org_id, name) do update set knobs = excluded.knobs, updated_at = now();
    perform engine.audit_profile(caller, org, profile, 'profile_set', knobs);
    return engine.demand_profile(org, profile);
end
$$;
