-- What a search of the past reads, and what selective filters find items by. Indexes are built inside the migration's
-- transaction, as all there is: writes wait meanwhile (seconds for a million items; nothing larger has been released).
-- squawk-ignore-file require-concurrent-index-creation, disallowed-unique-constraint, constraint-missing-not-valid
-- squawk-ignore-file ban-drop-constraint

-- Chunks outlive an edit: those whose text an edit has replaced stay, for searches of a time before it.
alter table almagest.chunks
add column version int not null default 1,
add column since_version int not null default 1;

comment on column almagest.chunks.version is 'The last version of the item that says this; the current one moves it on.';
comment on column almagest.chunks.since_version is 'The first version of the item that says this.';

-- What came before the item's version now was deleted, so no chunk may speak for it.
update almagest.chunks as k
set version = i.version, since_version = i.version
from almagest.items as i
where i.id = k.item_id and i.version <> 1;

alter table almagest.chunks drop constraint chunks_item_id_position_key;
-- the ids come from the index alone
alter table almagest.chunks add constraint chunks_place
unique (item_id, version, position) include (id, since_version);

create index items_created on almagest.items (org_id, created_at);
create index items_occurred on almagest.items (org_id, occurred_at) where occurred_at is not null;
create index items_type on almagest.items (org_id, type);
create index items_folder on almagest.items (folder_id) where folder_id is not null;
create index items_source on almagest.items (org_id, source_ref) where source_ref is not null;
create index items_metadata on almagest.items using gin (metadata jsonb_path_ops);

-- In which state an item was at a time.
create index audit_log_states on almagest.audit_log (org_id, item_id, id) where action in ('archived', 'restored');
