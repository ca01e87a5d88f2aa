-- Takes a scope back.
--   request  {org, member or agent, client or deal}: ids, slugs or an e-mail
--   returns  {revoked: true}
--   errors   403 forbidden, 404 unknown_member, unknown_agent, unknown_client, unknown_deal, 422 invalid_scope
create or replace function api.revoke_scope(caller jsonb, request jsonb)
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
    delete from almagest.member_scopes as s
    where s.org_id = org
        and s.user_id is not distinct from member and s.agent_id is not distinct from agent
        and s.client_id is not distinct from client and s.deal_id is not distinct from deal;
    return jsonb_build_object('revoked', true);
end
$$;
