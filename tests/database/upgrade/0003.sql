-- Rows as they were once migration 0003 had landed.
insert into almagest.folders (id, org_id, name) values
    ('1a000000-0000-0000-0000-000000000000', '0a000000-0000-0000-0000-000000000000', 'Notes');
insert into almagest.items (id, org_id, client_id, folder_id, kind, type, title, content, origin, index_status) values (
    '10000000-0000-0000-0000-000000000000', '0a000000-0000-0000-0000-000000000000',
    '0d000000-0000-0000-0000-000000000000', '1a000000-0000-0000-0000-000000000000', 'memory', 'decision', 'Deploys',
    'We deploy on Tuesdays.', 'agent', 'search_ready'
);
insert into almagest.item_versions (
    item_id, version, org_id, type, content, metadata, tags, priority, valid_from, valid_to
) values (
    '10000000-0000-0000-0000-000000000000', 1, '0a000000-0000-0000-0000-000000000000', 'decision',
    'We deploy on Mondays.', '{}', '{deploy}', 0.5, now() - interval '2 days', now() - interval '1 day'
);
insert into almagest.item_tags (item_id, org_id, tag) values
    ('10000000-0000-0000-0000-000000000000', '0a000000-0000-0000-0000-000000000000', 'deploy');
insert into almagest.pins (org_id, item_id) values
    ('0a000000-0000-0000-0000-000000000000', '10000000-0000-0000-0000-000000000000');
insert into almagest.chunks (item_id, org_id, position, start_offset, end_offset, text) values (
    '10000000-0000-0000-0000-000000000000', '0a000000-0000-0000-0000-000000000000', 0, 0, 22, 'We deploy on Tuesdays.'
);
insert into almagest.lexical (
    chunk_id, item_id, org_id, client_id, state, kind, sequence, place, tokeniser, length, terms
)
select
    id, item_id, org_id, '0d000000-0000-0000-0000-000000000000', 'active', 'memory', item_id, position, 1, 2,
    '''deploy'':1A ''tuesday'':2A'
from almagest.chunks;
insert into almagest.embedding_models (id, name) values (1, 'a model');
insert into almagest.embeddings (chunk_id, model_id, item_id, org_id, client_id, state, vector)
select
    id, 1, item_id, org_id, '0d000000-0000-0000-0000-000000000000', 'active',
    translate(array_fill(0.051, array[384])::text, '{}', '[]')::@extschema:vector@.halfvec
from almagest.chunks;
