-- What the system does by itself and finds out about itself: scheduled runs and their steps, health checks, what was
-- tried to mend what they found, and the Hub, where people are told.
-- squawk-ignore-file require-concurrent-index-creation

create table almagest.job_runs (
    id bigint generated always as identity primary key,
    job text not null check (job ~ '^[a-z][a-z0-9_]{0,62}$'),
    scheduled_for timestamptz not null,
    state text not null check (state in ('running', 'succeeded', 'failed', 'skipped')),
    attempts int not null default 1 check (attempts > 0),
    worker text,
    stack text not null default 'local',
    lease_expires_at timestamptz,
    started_at timestamptz not null default now(),
    heartbeat_at timestamptz not null default now(),
    finished_at timestamptz,
    figures jsonb not null default '{}',
    error text,
    unique (job, scheduled_for)
);
comment on table almagest.job_runs is
'Each run of a scheduled job, once however often its schedule is delivered; skipped: another run was at work.';
comment on column almagest.job_runs.stack is 'Which stack it was done in: that of the schedules, or another machine''s.';
create index job_runs_running on almagest.job_runs (job) where state = 'running';
create index job_runs_age on almagest.job_runs (started_at);

create table almagest.job_steps (
    run_id bigint not null references almagest.job_runs on delete cascade,
    name text not null,
    position int not null,
    state text not null check (state in ('running', 'succeeded', 'failed')),
    attempts int not null default 1 check (attempts > 0),
    started_at timestamptz not null default now(),
    finished_at timestamptz,
    checkpoint jsonb,
    figures jsonb not null default '{}',
    error text,
    primary key (run_id, name)
);
comment on table almagest.job_steps is
'Steps of a run: one that succeeded is not done again when the run is taken up, one that broke off has its checkpoint.';

create table almagest.health_runs (
    run_id bigint primary key references almagest.job_runs on delete cascade,
    status text not null check (status in ('ok', 'degraded', 'failed')),
    checked_at timestamptz not null default now(),
    remediated_by bigint references almagest.job_runs on delete set null
);
comment on table almagest.health_runs is 'Runs of the health checks with their worst status, and the run that tried to mend it.';
create index health_runs_untried on almagest.health_runs (checked_at)
where status <> 'ok' and remediated_by is null;
create index health_runs_remediated on almagest.health_runs (remediated_by);

create table almagest.health_checks (
    run_id bigint not null references almagest.job_runs on delete cascade,
    name text not null,
    status text not null check (status in ('ok', 'degraded', 'failed')),
    measured double precision,
    threshold double precision,
    unit text,
    sentence text not null,
    figures jsonb not null default '{}',
    duration_ms double precision not null,
    checked_at timestamptz not null default now(),
    primary key (run_id, name)
);
comment on table almagest.health_checks is
'What a check found, in a run of health or, checked again, of remediation: figures and ids, never content.';
create index health_checks_name on almagest.health_checks (name, checked_at);

create table almagest.remediations (
    id bigint generated always as identity primary key,
    run_id bigint not null references almagest.job_runs on delete cascade,
    health_run_id bigint references almagest.job_runs on delete set null,
    check_name text not null,
    action text not null,
    attempt int not null check (attempt > 0),
    state text not null check (state in ('mended', 'unchanged', 'failed', 'left')),
    before jsonb not null default '{}',
    after jsonb not null default '{}',
    error text,
    started_at timestamptz not null default now(),
    finished_at timestamptz,
    unique (run_id, check_name, action)
);
comment on table almagest.remediations is
'What was tried for a check that had not passed, with figures before and after; attempts count since it last passed.';
create index remediations_health_run on almagest.remediations (health_run_id);
create index remediations_check on almagest.remediations (check_name, id);

create table almagest.hub_feed (
    id uuid primary key default gen_random_uuid(),
    org_id uuid references almagest.orgs on delete cascade,
    user_id uuid,
    source text not null,
    key text not null,
    severity text not null check (severity in ('info', 'warning', 'critical')),
    title text not null,
    found text not null,
    tried jsonb not null default '[]',
    to_do text not null,
    figures jsonb not null default '{}',
    tries int not null default 0 check (tries >= 0),
    opened_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    closed_at timestamptz,
    check (user_id is null or org_id is not null)
);
comment on table almagest.hub_feed is
'What people are told: one open entry a key. org_id null: of the installation, for owners and admins of every org.';
create unique index hub_feed_open on almagest.hub_feed (key, org_id, user_id) nulls not distinct
where closed_at is null;
create index hub_feed_org on almagest.hub_feed (org_id, updated_at);

create table almagest.hub_marks (
    entry_id uuid not null references almagest.hub_feed on delete cascade,
    user_id uuid not null,
    read_at timestamptz,
    dismissed_at timestamptz,
    primary key (entry_id, user_id)
);
comment on table almagest.hub_marks is 'Who has read or dismissed which entry of the Hub.';

create table almagest.made_objects (
    kind text not null,
    name text not null,
    digest text not null,
    primary key (kind, name)
);
comment on table almagest.made_objects is
'Functions, policies and constraints as the migrations and the code made them, for health to compare with what is there.';

do $$
declare
    t text;
begin
    foreach t in array array[
        'job_runs', 'job_steps', 'health_runs', 'health_checks', 'remediations', 'hub_feed', 'hub_marks',
        'made_objects'
    ] loop
        execute format('alter table almagest.%I enable row level security', t);
        execute format('alter table almagest.%I force row level security', t);
    end loop;
end
$$;

alter table almagest.orgs add column is_system boolean not null default false;
comment on column almagest.orgs.is_system is 'The health checks'' own org: no list shows it, and nobody is a member of it.';
-- one at the most, whoever makes it first
create unique index orgs_system on almagest.orgs (is_system) where is_system;

-- The traces tell how long each stage took; a sum beside them, and an index of the slow ones alone, find those among
-- millions without reading a trace.
alter table almagest.retrievals add column took_ms real;
comment on column almagest.retrievals.took_ms is 'What the stages of a search took together in the database; null: it is not known.';
create index retrievals_slow on almagest.retrievals (created_at) where took_ms >= 250;
