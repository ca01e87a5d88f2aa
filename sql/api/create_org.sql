-- Makes an org with its first owner. Only the system (caller null) makes orgs.
--   request  {slug, name, owner: {user_id, email, name}}; user_id may be left out
--   returns  {id, slug, name, owner: user id}
--   errors   403 forbidden, 409 slug_taken, slug_reserved, 422 invalid_slug
create or replace function api.create_org(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    o almagest.orgs;
    owner uuid;
begin
    if caller is not null then
        perform engine.problem(403, 'forbidden', 'Orgs are made by the operator of the system.');
    end if;
    perform engine.demand_slug(request ->> 'slug');
    perform engine.demand_free_slug(request ->> 'slug');
    insert into almagest.orgs (slug, name)
    values (request ->> 'slug', coalesce(request ->> 'name', request ->> 'slug'))
    on conflict do nothing
    returning * into o;
    if o.id is null then
        perform engine.problem(409, 'slug_taken', 'There is an org of this slug already.');
    end if;
    insert into almagest.members (org_id, user_id, role, email, name) values (
        o.id, coalesce((request -> 'owner' ->> 'user_id')::uuid, gen_random_uuid()), 'owner',
        request -> 'owner' ->> 'email', request -> 'owner' ->> 'name'
    ) returning user_id into owner;
    return jsonb_build_object('id', o.id, 'slug', o.slug, 'name', o.name, 'owner', owner);
end
$$;
