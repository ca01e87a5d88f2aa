-- The deals of an org, with their clients.
--   request  {org}
--   returns  {deals: [{id, slug, name, client: slug, created_at}]}
--   errors   403 forbidden, 404 unknown_org
create or replace function api.list_deals(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
begin
    return jsonb_build_object('deals', (
        select coalesce(jsonb_agg(jsonb_build_object(
            'id', d.id, 'slug', d.slug, 'name', d.name, 'client', k.slug, 'created_at', d.created_at
        ) order by k.slug, d.slug), '[]')
        from almagest.deals as d
        join almagest.clients as k on k.id = d.client_id
        where d.org_id = org
    ));
end
$$;
