-- How long traces and the answers to idempotency keys are kept, and an index by which a job finds what is over.
-- squawk-ignore-file require-concurrent-index-creation

create table almagest.retention (
    org_id uuid references almagest.orgs on delete cascade,
    trace_days int check (trace_days between 1 and 3650),
    idempotency_days int check (idempotency_days between 1 and 365),
    updated_at timestamptz not null default now(),
    unique nulls not distinct (org_id),
    check (org_id is not null or (trace_days is not null and idempotency_days is not null))
);
comment on table almagest.retention is
'Days for which traces and idempotency keys are kept; org_id null: of every org that says nothing of its own.';
alter table almagest.retention enable row level security;
alter table almagest.retention force row level security;

insert into almagest.retention (org_id, trace_days, idempotency_days) values (null, 90, 7);

-- Rows come in the order of their time, so a few bytes a megabyte say where to look; a search does not notice it.
create index retrievals_age on almagest.retrievals using brin (created_at);
create index activations_age on almagest.activations using brin (created_at);
