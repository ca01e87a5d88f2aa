-- Rows as they were once migration 0009 had landed: a version that knows its source and whom it was attributed to.
insert into almagest.item_versions (
    item_id, version, org_id, type, title, content, metadata, tags, priority, source_ref, agent_name, occurred_at,
    evergreen, valid_from, valid_to
) values (
    '18000000-0000-0000-0000-000000000000', 2, '0a000000-0000-0000-0000-000000000000', 'note', 'Releases',
    'We release on Wednesdays.', '{}', '{}', 0.5, 'handbook', 'scribe',
    '2026-01-15T12:00:00Z', true, '2026-02-01T00:00:00Z', '2026-03-01T00:00:00Z'
);
