-- Versions keep all that an edit may change, and the vector index finds more of what an exact scan would. The index is
-- built inside the migration's transaction, as all there is: writes wait meanwhile (minutes for a million chunks; a
-- maintenance_work_mem that holds the graph, 1 kB a chunk, makes it several times faster).
-- squawk-ignore-file require-concurrent-index-deletion, require-concurrent-index-creation

alter table almagest.item_versions
add column source_ref text,
add column agent_name text,
add column occurred_at timestamptz,
add column evergreen boolean not null default false;

-- What these said before is not known; what they say now is the nearest to it.
update almagest.item_versions as v
set source_ref = i.source_ref, agent_name = i.agent_name, occurred_at = i.occurred_at, evergreen = i.evergreen
from almagest.items as i
where i.id = v.item_id;

drop index almagest.embeddings_vector_1;
create index embeddings_vector_1 on almagest.embeddings
using hnsw (vector @extschema:vector@.halfvec_cosine_ops) with (m = 24, ef_construction = 128)
where model_id = 1;
