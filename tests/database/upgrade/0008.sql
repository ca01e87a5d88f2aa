-- Rows as they were once migration 0008 had landed: an item that was edited, with what it said before.
insert into almagest.items (id, org_id, kind, type, title, content, content_hash, origin, version, index_status)
values (
    '18000000-0000-0000-0000-000000000000', '0a000000-0000-0000-0000-000000000000', 'memory', 'note', 'Releases',
    'We release on Wednesdays.', repeat('8', 64), 'agent', 2, 'text_ready'
);
insert into almagest.item_versions (
    item_id, version, org_id, type, title, content, metadata, tags, priority, valid_from, valid_to
) values (
    '18000000-0000-0000-0000-000000000000', 1, '0a000000-0000-0000-0000-000000000000', 'note', 'Releases',
    'We release on Mondays.', '{}', '{}', 0.5, '2026-01-01T00:00:00Z', '2026-02-01T00:00:00Z'
);
insert into almagest.chunks (item_id, org_id, version, since_version, position, start_offset, end_offset, text) values
    ('18000000-0000-0000-0000-000000000000', '0a000000-0000-0000-0000-000000000000', 1, 1, 0, 0, 22, 'We release on Mondays.'),
    ('18000000-0000-0000-0000-000000000000', '0a000000-0000-0000-0000-000000000000', 2, 2, 0, 0, 25, 'We release on Wednesdays.');
