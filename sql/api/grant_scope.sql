-- Lets a member or an agent see the items of a client (all its deals) or of one deal.
--   request  {org, member or agent, client or deal}: ids, slugs or an e-mail
--   returns  {granted: true}
--   errors   403 forbidden, 404 unknown_member, unknown_agent, unknown_client, unknown_deal, 422 invalid_scope
create or replace function api.grant_scope(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    org uuid := engine.administered_org(caller, request);
    member uuid := engine.member_id(org, request ->> 'member');
    agent uuid := engine.agent_id(org, request ->> 'agent');
    client uuid := engine.client_id(org, request ->> 'client');
    deal uuid := engine.deal_id(org, request ->> 'deal');
begin
    if num_nonnulls(member, agent) <> 1 or num_nonnulls(client, deal) <> 1 then
        perform engine.problem(422, 'invalid_scope', 'A scope is for one member or agent, and of one client or deal.');
    end if;
    insert into almagest.member_scopes (org_id, user_id, agent_id, client_id, deal_id)
    values (org, member, agent, client, deal)
    on conflict do nothing;
    return jsonb_build_object('granted', true);
end
$$;
