-- Who works on which client or deal.
--   request  {org}
--   returns  {scopes: [{member, agent, client, deal}]}; e-mail or id of the member, slugs of the others
--   errors   403 forbidden, 404 unknown_org
create or replace function api.list_scopes(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
begin
    return jsonb_build_object('scopes', (
        select coalesce(jsonb_agg(jsonb_build_object(
            'member', coalesce(m.email, m.user_id::text), 'agent', a.slug, 'client', k.slug, 'deal', d.slug
        ) order by s.created_at, s.id), '[]')
        from almagest.member_scopes as s
        left join almagest.members as m on m.org_id = s.org_id and m.user_id = s.user_id
        left join almagest.agents as a on a.id = s.agent_id
        left join almagest.clients as k on k.id = s.client_id
        left join almagest.deals as d on d.id = s.deal_id
        where s.org_id = org
    ));
end
$$;
