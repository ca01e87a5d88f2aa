-- Items and everything that belongs to one: versions, tags, facts, pins, and the slices that search reads.

create table almagest.item_types (
    org_id uuid references almagest.orgs on delete cascade,
    name text not null check (name ~ '^[a-z][a-z0-9_]{0,62}$'),
    strength_floor real not null default 0.05 check (strength_floor between 0.05 and 1),
    starting_strength real not null default 0.5 check (starting_strength between 0.05 and 1),
    may_be_private boolean not null default true,
    description text not null default '',
    unique nulls not distinct (org_id, name)
);
comment on table almagest.item_types is 'What an item says; org_id null is built in, and an org''s own row of the same name wins.';

insert into almagest.item_types (name, strength_floor, starting_strength, description) values
    ('decision', 0.3, 0.6, 'What was decided, and why.'),
    ('architecture', 0.5, 0.7, 'How a system is built; protected from fading.'),
    ('framework', 0.5, 0.7, 'A way of thinking that work follows; protected from fading.'),
    ('playbook', 0.5, 0.7, 'Steps for a situation; protected from fading.'),
    ('fact', 0.05, 0.5, 'Something that is so.'),
    ('preference', 0.05, 0.5, 'How someone wants it.'),
    ('insight', 0.05, 0.5, 'Something learned.'),
    ('note', 0.05, 0.5, 'Anything written down.'),
    ('episode', 0.05, 0.5, 'What happened in a session.'),
    ('document', 0.05, 0.5, 'A formal document.');

create table almagest.folders (
    id uuid primary key default gen_random_uuid(),
    org_id uuid not null references almagest.orgs on delete cascade,
    parent_id uuid,
    name text not null check (length(name) between 1 and 200),
    icon text,
    color text,
    sort_order int not null default 0,
    created_at timestamptz not null default now(),
    unique (org_id, id),
    unique nulls not distinct (org_id, parent_id, name),
    foreign key (org_id, parent_id) references almagest.folders (org_id, id) on delete cascade
);
comment on table almagest.folders is 'Where items lie for people; no effect on who sees them.';

create table almagest.items (
    id uuid primary key default gen_random_uuid(),
    org_id uuid not null references almagest.orgs on delete cascade,
    user_id uuid,           -- null: shared; set: private to that user
    project_id uuid,
    client_id uuid,
    deal_id uuid,
    -- what it is
    kind text not null check (kind in ('memory', 'page', 'skill', 'file', 'source', 'fact')),
    type text not null,
    slug text,
    title text,
    summary text,
    content text,           -- as written; null once erased
    plain_text text,        -- the text to index where content is not plain text itself
    metadata jsonb not null default '{}',
    -- where it came from
    origin text not null check (origin in ('upload', 'chat', 'connector', 'agent')),
    origin_metadata jsonb not null default '{}',
    source_ref text,
    connection_id uuid,
    external_id text,
    run_id text,
    source_item_id uuid,
    agent_name text,
    author_user_id uuid,
    author_agent_id uuid,
    conversation_id text,
    conversation_position int,
    -- who sees it
    scope text not null default 'library' check (scope in ('workspace', 'agent', 'library')),
    agent_ids uuid[],       -- scope agent: the assigned agents, copied from item_agents; otherwise null
    folder_id uuid,
    -- how it lives
    priority real not null default 0.5 check (priority between 0 and 1),
    tier text not null default 'hot' check (tier in ('hot', 'warm', 'archive')),
    evergreen boolean not null default false,
    state text not null default 'active' check (state in ('active', 'provisional', 'revoked', 'archived', 'erased')),
    archived_at timestamptz,
    version int not null default 1,
    content_hash text,
    -- files
    file_url text,
    file_name text,
    mime_type text,
    file_size bigint,
    -- indexing
    index_status text check (index_status in ('pending', 'indexing', 'text_ready', 'search_ready', 'failed')),
    index_error text,
    index_attempts int not null default 0,
    index_after timestamptz not null default now(),
    lease_owner text,
    lease_expires_at timestamptz,
    -- times
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),      -- when the current version began
    accessed_at timestamptz not null default now(),
    validated_at timestamptz not null default now(),
    occurred_at timestamptz,
    unique (org_id, id),
    check ((scope = 'agent') = (agent_ids is not null)),
    check ((state = 'erased') = (content is null and index_status is null)),
    foreign key (org_id, project_id) references almagest.projects (org_id, id),
    foreign key (org_id, client_id) references almagest.clients (org_id, id),
    foreign key (org_id, deal_id) references almagest.deals (org_id, id),
    foreign key (org_id, folder_id) references almagest.folders (org_id, id)
);
comment on table almagest.items is 'Any durable piece of knowledge.';

-- One text is kept once within its scope; who may see it, where it was said and what it refers to belong to the key. So
-- does whether it is provisional: few may see that, and nobody may learn of it from a duplicate.
create unique index items_duplicate on almagest.items (
    org_id, content_hash, user_id, kind, project_id, client_id, deal_id, scope, agent_ids,
    conversation_id, conversation_position, source_ref, (state = 'provisional')
) nulls not distinct
where state in ('active', 'provisional', 'archived') and content_hash is not null;
create unique index items_external on almagest.items (connection_id, external_id);
create index items_conversation on almagest.items (org_id, conversation_id, conversation_position)
where conversation_id is not null;
create index items_recent on almagest.items (org_id, updated_at desc);
create index items_scope on almagest.items (org_id, scope, updated_at desc) where scope <> 'library';
create index items_queue on almagest.items (index_after) where index_status <> 'search_ready';
create index items_project on almagest.items (project_id) where project_id is not null;
create index items_client on almagest.items (client_id) where client_id is not null;
create index items_deal on almagest.items (deal_id) where deal_id is not null;

create table almagest.item_versions (
    item_id uuid not null references almagest.items on delete cascade,
    version int not null,
    org_id uuid not null,
    user_id uuid,
    type text not null,
    title text,
    summary text,
    content text,
    plain_text text,
    metadata jsonb not null,
    tags text[] not null,
    priority real not null,
    content_hash text,
    valid_from timestamptz not null,
    valid_to timestamptz not null,
    primary key (item_id, version)
);
comment on table almagest.item_versions is 'Versions that an edit has replaced, each with the time in which it was current.';

create table almagest.item_tags (
    item_id uuid not null references almagest.items on delete cascade,
    org_id uuid not null,
    user_id uuid,
    tag text not null check (length(tag) between 1 and 100),
    source text not null default 'manual' check (source in ('manual', 'auto')),
    confidence real not null default 1 check (confidence between 0 and 1),
    created_at timestamptz not null default now(),
    primary key (item_id, tag, source)
);
comment on table almagest.item_tags is 'Tags; manual ones are never removed by the system.';
create index item_tags_tag on almagest.item_tags (org_id, tag);

create table almagest.item_agents (
    item_id uuid not null,
    agent_id uuid not null,
    org_id uuid not null,
    primary key (item_id, agent_id),
    foreign key (org_id, item_id) references almagest.items (org_id, id) on delete cascade,
    foreign key (org_id, agent_id) references almagest.agents (org_id, id) on delete cascade
);
comment on table almagest.item_agents is 'Which agents an agent-scoped item is assigned to.';
create index item_agents_agent on almagest.item_agents (agent_id);

create table almagest.facts (
    item_id uuid primary key references almagest.items on delete cascade,
    org_id uuid not null,
    user_id uuid,
    client_id uuid,
    deal_id uuid,
    agent_ids uuid[],
    subject text not null,
    subject_entity_id uuid,
    relation text not null,
    status text not null check (status in ('active', 'provisional', 'revoked')),
    superseded_by uuid references almagest.items,
    created_at timestamptz not null default now(),
    revoked_at timestamptz
);
comment on table almagest.facts is 'Atomic facts: subject and relation of an item of kind fact, whose content is the sentence.';
-- Scope is part of the key: a private fact can never supersede a shared one, nor another user's.
create unique index facts_current on almagest.facts (
    org_id, lower(subject), lower(relation), user_id, client_id, deal_id, agent_ids
) nulls not distinct where status = 'active';

create table almagest.pins (
    id uuid primary key default gen_random_uuid(),
    org_id uuid not null,
    user_id uuid,
    item_id uuid not null,
    position int not null default 0,
    created_at timestamptz not null default now(),
    unique nulls not distinct (org_id, user_id, item_id),
    foreign key (org_id, item_id) references almagest.items (org_id, id) on delete cascade
);
comment on table almagest.pins is 'Items that are in every run''s prefix, whole; user_id set: only in that user''s runs.';
create index pins_item on almagest.pins (item_id);

create table almagest.policies (
    id uuid primary key default gen_random_uuid(),
    org_id uuid not null references almagest.orgs on delete cascade,
    name text not null check (length(name) between 1 and 200),
    body text not null,
    position int not null default 0,
    active boolean not null default true,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    unique (org_id, name)
);
comment on table almagest.policies is 'Governance rules that are in every run''s prefix while active.';

create table almagest.variables (
    id uuid primary key default gen_random_uuid(),
    org_id uuid not null references almagest.orgs on delete cascade,
    client_id uuid,
    deal_id uuid,
    name text not null check (length(name) between 1 and 200),
    value text not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    unique nulls not distinct (org_id, client_id, deal_id, name),
    foreign key (org_id, client_id) references almagest.clients (org_id, id) on delete cascade,
    foreign key (org_id, deal_id) references almagest.deals (org_id, id) on delete cascade
);
comment on table almagest.variables is 'Vocabulary resolved outwards: deal, then client, then org.';

-- What search reads. The columns that decide who sees a row stand on every one of these tables, since a join inside a
-- nearest-neighbour query loses its index, and a filter after the nearest k loses rows.
create table almagest.chunks (
    id bigint generated always as identity primary key,
    item_id uuid not null references almagest.items on delete cascade,
    org_id uuid not null,
    user_id uuid,
    position int not null,
    start_offset int not null,
    end_offset int not null,
    heading_path text,
    text text not null,
    unique (item_id, position)
);
comment on table almagest.chunks is 'Slices of an item''s text, at most 1200 characters, in order; offsets count characters.';

create table almagest.lexical (
    chunk_id bigint primary key references almagest.chunks on delete cascade,
    item_id uuid not null,
    org_id uuid not null,
    user_id uuid,
    client_id uuid,
    deal_id uuid,
    agent_ids uuid[],
    state text not null,
    kind text not null,
    sequence uuid not null, -- what its neighbours share: the conversation, within the scope of who sees it, or the item
    place int not null,     -- in the sequence
    tokeniser smallint not null,
    length int not null,    -- in terms
    terms tsvector not null -- all of weight A
);
comment on table almagest.lexical is 'Terms of each chunk, narrow, for the keyword leg.';
create index lexical_terms on almagest.lexical using gin (ts_filter(terms, '{a}'));
create index lexical_org on almagest.lexical (org_id, user_id);
create index lexical_item on almagest.lexical (item_id);
create index lexical_sequence on almagest.lexical (sequence, place, chunk_id);

create table almagest.embedding_models (
    id smallint generated by default as identity primary key,
    name text not null unique,
    created_at timestamptz not null default now()
);
comment on table almagest.embedding_models is 'Models that have made vectors here; vectors of two models are never compared.';

create table almagest.embeddings (
    chunk_id bigint not null references almagest.chunks on delete cascade,
    model_id smallint not null references almagest.embedding_models,
    item_id uuid not null,
    org_id uuid not null,
    user_id uuid,
    client_id uuid,
    deal_id uuid,
    agent_ids uuid[],
    state text not null,
    vector @extschema:vector@.halfvec(384) not null,
    primary key (chunk_id, model_id)
);
comment on table almagest.embeddings is 'One vector a chunk and model, unit length, for the vector leg.';
create index embeddings_org on almagest.embeddings (org_id, user_id);
create index embeddings_item on almagest.embeddings (item_id);
-- One partial index a model; the first model to write gets number 1.
create index embeddings_vector_1 on almagest.embeddings
using hnsw (vector @extschema:vector@.halfvec_cosine_ops) with (m = 16, ef_construction = 64)
where model_id = 1;
