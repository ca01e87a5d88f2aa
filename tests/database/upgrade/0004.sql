-- Rows as they were once migration 0004 had landed.
insert into almagest.strength_signals (item_id, org_id, starting_strength) values
    ('10000000-0000-0000-0000-000000000000', '0a000000-0000-0000-0000-000000000000', 0.6);
insert into almagest.retrievals (id, org_id, purpose, profile, mode, query) values (
    '20000000-0000-0000-0000-000000000000', '0a000000-0000-0000-0000-000000000000', 'search', 'user_search', 'hybrid',
    'when do we deploy?'
);
insert into almagest.activations (org_id, item_id, retrieval_id, use) values (
    '0a000000-0000-0000-0000-000000000000', '10000000-0000-0000-0000-000000000000',
    '20000000-0000-0000-0000-000000000000', 'surfaced'
);
insert into almagest.audit_log (org_id, item_id, action) values
    ('0a000000-0000-0000-0000-000000000000', '10000000-0000-0000-0000-000000000000', 'write');
