-- Makes a deal of a client.
--   request  {org, client: id or slug, slug, name}
--   returns  {id, client, slug, name}
--   errors   403 forbidden, 404 unknown_client, 409 slug_taken, 422 invalid_slug
create or replace function api.create_deal(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
    made almagest.deals;
begin
    perform engine.demand_slug(request ->> 'slug');
    insert into almagest.deals (org_id, client_id, slug, name) values (
        org, engine.client_id(org, coalesce(request ->> 'client', '')), request ->> 'slug',
        coalesce(request ->> 'name', request ->> 'slug')
    )
    on conflict do nothing
    returning * into made;
    if made.id is null then
        perform engine.problem(409, 'slug_taken', 'There is a deal of this slug already.');
    end if;
    return jsonb_build_object('id', made.id, 'client', made.client_id, 'slug', made.slug, 'name', made.name);
end
$$;
