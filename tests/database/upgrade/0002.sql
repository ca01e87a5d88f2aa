-- Rows as they were once migration 0002 had landed.
insert into almagest.orgs (id, slug, name) values ('0a000000-0000-0000-0000-000000000000', 'acme', 'Acme');
insert into almagest.members (org_id, user_id, role, email) values
    ('0a000000-0000-0000-0000-000000000000', '0b000000-0000-0000-0000-000000000000', 'owner', 'ann@acme.example');
insert into almagest.projects (id, org_id, slug, name) values
    ('0c000000-0000-0000-0000-000000000000', '0a000000-0000-0000-0000-000000000000', 'atlas', 'Atlas');
insert into almagest.clients (id, org_id, slug, name) values
    ('0d000000-0000-0000-0000-000000000000', '0a000000-0000-0000-0000-000000000000', 'globex', 'Globex');
insert into almagest.deals (id, org_id, client_id, slug, name) values (
    '0e000000-0000-0000-0000-000000000000', '0a000000-0000-0000-0000-000000000000',
    '0d000000-0000-0000-0000-000000000000', 'rollout', 'Rollout'
);
insert into almagest.agents (id, org_id, slug, name) values
    ('0f000000-0000-0000-0000-000000000000', '0a000000-0000-0000-0000-000000000000', 'builder', 'Builder');
insert into almagest.member_scopes (org_id, agent_id, client_id) values (
    '0a000000-0000-0000-0000-000000000000', '0f000000-0000-0000-0000-000000000000',
    '0d000000-0000-0000-0000-000000000000'
);
insert into almagest.api_keys (org_id, agent_id, role, name, prefix, key_hash) values (
    '0a000000-0000-0000-0000-000000000000', '0f000000-0000-0000-0000-000000000000', 'agent', 'ci', 'alm_12345678',
    repeat('0', 64)
);
