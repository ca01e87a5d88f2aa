-- Makes a project in an org.
--   request  {org, slug, name}
--   returns  {id, slug, name}
--   errors   403 forbidden, 404 unknown_org, 409 slug_taken, 422 invalid_slug
create or replace function api.create_project(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
    made almagest.projects;
begin
    perform engine.demand_slug(request ->> 'slug');
    insert into almagest.projects (org_id, slug, name)
    values (org, request ->> 'slug', coalesce(request ->> 'name', request ->> 'slug'))
    on conflict do nothing
    returning * into made;
    if made.id is null then
        perform engine.problem(409, 'slug_taken', 'There is a project of this slug already.');
    end if;
    return jsonb_build_object('id', made.id, 'slug', made.slug, 'name', made.name);
end
$$;
