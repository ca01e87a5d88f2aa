-- Orgs, people, agents, what they work on, and the keys they carry. Every foreign key inside an org names the org too,
-- so that no row can point into another tenant.

create table almagest.orgs (
    id uuid primary key default gen_random_uuid(),
    slug text not null unique check (slug ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    name text not null check (length(name) between 1 and 200),
    settings jsonb not null default '{}',
    created_at timestamptz not null default now()
);
comment on table almagest.orgs is 'The tenants.';

create table almagest.members (
    org_id uuid not null references almagest.orgs on delete cascade,
    user_id uuid not null default gen_random_uuid(),
    role text not null check (role in ('owner', 'admin', 'solutions_engineer', 'project_manager', 'member')),
    email text,
    name text,
    created_at timestamptz not null default now(),
    primary key (org_id, user_id)
);
comment on table almagest.members is 'People of an org; user_id is the Supabase user''s id where there is one.';
create unique index members_email on almagest.members (org_id, lower(email));
create index members_user on almagest.members (user_id);

create table almagest.clients (
    id uuid primary key default gen_random_uuid(),
    org_id uuid not null references almagest.orgs on delete cascade,
    slug text not null check (slug ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    name text not null check (length(name) between 1 and 200),
    created_at timestamptz not null default now(),
    unique (org_id, slug),
    unique (org_id, id)
);
comment on table almagest.clients is 'Whom an org works for; the middle of org > client > deal.';

create table almagest.deals (
    id uuid primary key default gen_random_uuid(),
    org_id uuid not null references almagest.orgs on delete cascade,
    client_id uuid not null,
    slug text not null check (slug ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    name text not null check (length(name) between 1 and 200),
    created_at timestamptz not null default now(),
    unique (org_id, slug),
    unique (org_id, id),
    foreign key (org_id, client_id) references almagest.clients (org_id, id) on delete cascade
);
comment on table almagest.deals is 'One engagement with a client.';
create index deals_client on almagest.deals (client_id);

create table almagest.projects (
    id uuid primary key default gen_random_uuid(),
    org_id uuid not null references almagest.orgs on delete cascade,
    slug text not null check (slug ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    name text not null check (length(name) between 1 and 200),
    created_at timestamptz not null default now(),
    unique (org_id, slug),
    unique (org_id, id)
);
comment on table almagest.projects is 'What documents and memories may belong to; a filter, not a wall.';

create table almagest.agents (
    id uuid primary key default gen_random_uuid(),
    org_id uuid not null references almagest.orgs on delete cascade,
    slug text not null check (slug ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    name text not null check (length(name) between 1 and 200),
    created_at timestamptz not null default now(),
    unique (org_id, slug),
    unique (org_id, id)
);
comment on table almagest.agents is 'Agents with a credential of their own; agent-scoped items are assigned to them.';

create table almagest.member_scopes (
    id uuid primary key default gen_random_uuid(),
    org_id uuid not null references almagest.orgs on delete cascade,
    user_id uuid,
    agent_id uuid,
    client_id uuid,
    deal_id uuid,
    created_at timestamptz not null default now(),
    check (num_nonnulls(user_id, agent_id) = 1),
    check (num_nonnulls(client_id, deal_id) = 1),
    unique nulls not distinct (org_id, user_id, agent_id, client_id, deal_id),
    foreign key (org_id, user_id) references almagest.members (org_id, user_id) on delete cascade,
    foreign key (org_id, agent_id) references almagest.agents (org_id, id) on delete cascade,
    foreign key (org_id, client_id) references almagest.clients (org_id, id) on delete cascade,
    foreign key (org_id, deal_id) references almagest.deals (org_id, id) on delete cascade
);
comment on table almagest.member_scopes is 'Which clients and deals a member or an agent works on, and so may see.';
create index member_scopes_agent on almagest.member_scopes (org_id, agent_id);

create table almagest.api_keys (
    id uuid primary key default gen_random_uuid(),
    org_id uuid not null references almagest.orgs on delete cascade,
    user_id uuid,
    agent_id uuid,
    role text not null
    check (role in ('owner', 'admin', 'solutions_engineer', 'project_manager', 'member', 'agent')),
    name text not null check (length(name) between 1 and 200),
    prefix text not null,
    key_hash text not null unique check (key_hash ~ '^[0-9a-f]{64}$'),
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    check (num_nonnulls(user_id, agent_id) >= 1),
    foreign key (org_id, user_id) references almagest.members (org_id, user_id) on delete cascade,
    foreign key (org_id, agent_id) references almagest.agents (org_id, id) on delete cascade
);
comment on table almagest.api_keys is 'API keys: only the SHA-256 is kept; prefix is what a person recognises a key by.';
create index api_keys_org on almagest.api_keys (org_id);

create table almagest.idempotency_keys (
    org_id uuid not null references almagest.orgs on delete cascade,
    principal uuid not null,
    key text not null check (length(key) between 1 and 300),
    request_hash text not null,
    response jsonb,
    created_at timestamptz not null default now(),
    primary key (org_id, principal, key)
);
comment on table almagest.idempotency_keys is 'Answers of writes already done, by the caller''s key; ids only, no content.';
create index idempotency_keys_age on almagest.idempotency_keys (created_at);
