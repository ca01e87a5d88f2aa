-- Rows as they were once migration 0010 had landed: a key with limits that was rotated, and what it had used.
insert into almagest.api_keys (
    id, org_id, agent_id, role, name, prefix, key_hash, rate, daily_quota, replaced_by, counted_as
) values (
    '19000000-0000-0000-0000-000000000000', '0a000000-0000-0000-0000-000000000000',
    '0f000000-0000-0000-0000-000000000000', 'agent', 'ci', 'alm_23456789', repeat('1', 64), 2.5, 1000, null, null
), (
    '1a000000-0000-0000-0000-000000000000', '0a000000-0000-0000-0000-000000000000',
    '0f000000-0000-0000-0000-000000000000', 'agent', 'ci', 'alm_34567890', repeat('2', 64), 2.5, 1000,
    '19000000-0000-0000-0000-000000000000', '19000000-0000-0000-0000-000000000000'
);
insert into almagest.usage (org_id, day, principal, source, requests) values (
    '0a000000-0000-0000-0000-000000000000', '2026-01-01', '19000000-0000-0000-0000-000000000000',
    '1b000000-0000-0000-0000-000000000000', 42
);
