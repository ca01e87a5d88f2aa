-- How far items are trusted, how searches were answered, and what became of the answers.

create table almagest.strength_signals (
    item_id uuid primary key references almagest.items on delete cascade,
    org_id uuid not null,
    user_id uuid,
    starting_strength real not null check (starting_strength between 0.05 and 1),
    recency real not null default 1 check (recency between 0 and 1),
    frequency real not null default 0 check (frequency between 0 and 1),
    diversity real not null default 0 check (diversity between 0 and 1),
    centrality real not null default 0 check (centrality between 0 and 1),
    confidence real not null default 0.5 check (confidence between 0 and 1),
    validated_at timestamptz not null default now(),
    source_trust real not null default 0.5 check (source_trust between 0 and 1),
    updated_at timestamptz not null default now()
);
comment on table almagest.strength_signals is
'The signals of strength, kept apart: recency, frequency, diversity, centrality, confidence, validation, source trust.';

create table almagest.search_profiles (
    org_id uuid references almagest.orgs on delete cascade,
    name text not null check (name ~ '^[a-z][a-z0-9_]{0,62}$'),
    knobs jsonb not null default '{}',
    updated_at timestamptz not null default now(),
    unique nulls not distinct (org_id, name)
);
comment on table almagest.search_profiles is 'Named sets of search knobs; org_id null is built in, an org''s own row is laid over it.';

insert into almagest.search_profiles (name, knobs) values
    ('user_search', '{}'), ('injection', '{}'), ('middleware', '{}');

create table almagest.retrievals (
    id uuid not null default gen_random_uuid(),
    created_at timestamptz not null default now(),
    org_id uuid not null,
    user_id uuid,
    agent_id uuid,
    request_id text,
    purpose text not null check (purpose in ('search', 'bootstrap')),
    profile text not null,
    mode text not null check (mode in ('hybrid', 'vector', 'lexical', 'substring')),
    degraded_reason text,
    query text,
    candidates int not null default 0,
    trace jsonb not null default '{}',
    primary key (id, created_at)
) partition by range (created_at);
comment on table almagest.retrievals is 'The trace of each search and context: how it was answered, and with which items (ids only).';
create index retrievals_org on almagest.retrievals (org_id, created_at desc);

create table almagest.activations (
    id bigint generated always as identity,
    created_at timestamptz not null default now(),
    org_id uuid not null,
    user_id uuid,
    item_id uuid not null,
    retrieval_id uuid,
    use text not null check (use in ('surfaced', 'opened', 'cited')),
    rank smallint,
    profile text,
    run_id text,
    query_vector @extschema:vector@.halfvec(384),
    primary key (id, created_at)
) partition by range (created_at);
comment on table almagest.activations is 'Each time an item was surfaced, opened or cited; append only, counted by a job.';
create index activations_item on almagest.activations (item_id, created_at desc);

create table almagest.retrievals_rest partition of almagest.retrievals default;
create table almagest.activations_rest partition of almagest.activations default;

create table almagest.audit_log (
    id bigint generated always as identity primary key,
    created_at timestamptz not null default now(),
    org_id uuid not null,
    user_id uuid,           -- the private partition that the row belongs to; null: shared
    item_id uuid,           -- no foreign key: the skeleton outlives what it describes
    name text,
    action text not null,
    version int,
    actor_user_id uuid,
    actor_agent_id uuid,
    actor_key_id uuid,
    detail jsonb not null default '{}'
);
comment on table almagest.audit_log is 'That something happened to an item, when and by whom; never what the item said.';
create index audit_log_item on almagest.audit_log (item_id, id);
create index audit_log_org on almagest.audit_log (org_id, id);

-- Row level security on every table, also for its owner; only the reader has policies (sql/engine/row_security.sql).
do $$
declare
    each_table regclass;
begin
    for each_table in
        select c.oid::regclass from pg_catalog.pg_class as c
        where c.relnamespace = 'almagest'::regnamespace and c.relkind in ('r', 'p')
    loop
        execute format('alter table %s enable row level security', each_table);
        execute format('alter table %s force row level security', each_table);
    end loop;
end
$$;
