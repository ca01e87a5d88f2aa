-- A key has limits of its own, and a successor once it was rotated; what credentials use is counted by day.

alter table almagest.api_keys
add column rate double precision,
add column daily_quota int,
add column replaced_by uuid,
add column counted_as uuid;

-- Every key that is there satisfies these, since the columns are new: nothing has to be read to know it.
alter table almagest.api_keys
add constraint api_keys_rate check (rate > 0 and rate <= 10000) not valid,
add constraint api_keys_daily_quota check (daily_quota > 0) not valid;

comment on column almagest.api_keys.rate is 'Requests a second that a container lets through; null is the default.';
comment on column almagest.api_keys.daily_quota is 'Requests a UTC day, in all containers together; null is no limit.';
comment on column almagest.api_keys.replaced_by is 'The key that it was rotated into; both hold until this one expires.';
comment on column almagest.api_keys.counted_as is
'The first key of a rotation, whose quota the later ones go on using; null is the key itself.';

-- A row for each container that counts, so that no two ever wait for each other, and a report that comes twice is one.
create table almagest.usage (
    org_id uuid not null references almagest.orgs on delete cascade,
    day date not null,
    principal uuid not null,
    source uuid not null,
    requests bigint not null check (requests >= 0),
    primary key (org_id, day, principal, source)
);
comment on table almagest.usage is
'Requests let through, by UTC day, key (or user, for those who come with a token) and the container that counted them.';
alter table almagest.usage enable row level security;
alter table almagest.usage force row level security;
