-- What the retrieval engine adds: statistics of large orgs, and types that carry a query and a candidate through it.

-- Statistics belong to a scope (user, client, deal, assigned agents), so that a search adds up what its caller may see,
-- and no hidden row's words show in a score.
create table almagest.partition_statistics (
    org_id uuid not null references almagest.orgs on delete cascade,
    user_id uuid,
    client_id uuid,
    deal_id uuid,
    agent_ids uuid[],
    documents bigint not null,
    total_length bigint not null,
    counted_at timestamptz not null default now(),
    unique nulls not distinct (org_id, user_id, client_id, deal_id, agent_ids)
);
comment on table almagest.partition_statistics is
'Chunks of each scope of the large orgs, counted by a job; small orgs are counted as they are searched.';

create table almagest.term_statistics (
    org_id uuid not null references almagest.orgs on delete cascade,
    user_id uuid,
    client_id uuid,
    deal_id uuid,
    agent_ids uuid[],
    term text not null,
    documents int not null,
    unique nulls not distinct (org_id, term, user_id, client_id, deal_id, agent_ids)
);
comment on table almagest.term_statistics is
'How many chunks of a scope hold a term that is frequent in a large org; rare ones are counted as they are searched.';

alter table almagest.partition_statistics enable row level security;
alter table almagest.partition_statistics force row level security;
alter table almagest.term_statistics enable row level security;
alter table almagest.term_statistics force row level security;

create type engine.query_terms as (
    terms text[],
    queries tsquery[],      -- one a term
    documents float8[],     -- chunks of the partition that hold it
    idfs float8[],
    size float8,            -- chunks of the partition
    average_length float8,  -- of a chunk, in terms
    counted text            -- live, or statistics
);
comment on type engine.query_terms is 'What the keyword leg knows of a query, rarest term first; made by engine.weigh_terms.';

create type engine.candidate as (
    chunk_id bigint,
    item_id uuid,
    keyword float8,     -- 0..1; null where the leg did not run
    matched float8,     -- share of the query's idf that the chunk and its neighbours hold, 0..1
    vector float8,      -- cosine, 0..1; null where the leg did not run
    metadata float8,    -- 0..1; null where it has no weight
    boosts jsonb,       -- what each boost added
    hybrid float8,      -- fused, 0..1
    relevance text,     -- high, standard or low
    strength float8,    -- 0.05..1
    final float8,       -- fused x strength
    cut text            -- why it is not in the answer, or null
);
comment on type engine.candidate is 'One item on its way through a search, with its best chunk.';
