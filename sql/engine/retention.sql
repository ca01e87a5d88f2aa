-- What ends by itself: traces (almagest.retrievals and almagest.activations) by month, idempotency keys and
-- entries of the Hub by age.
--
-- A month's rows lie in a partition of their own, which goes as a whole. engine.retention_plan says what is to be done,
-- engine.retain does one step of it in a transaction of its own, engine.expire_* delete what no partition can end. A
-- step that does not get its lock at once gives up (55P03): nobody who searches queues behind it, a later run does it.

-- The tables that are kept by month.
create or replace function engine.trace_tables()
returns text[] language sql immutable parallel safe as $$ select array['retrievals', 'activations'] $$;

-- Until when the traces of the org that keeps them the longest are kept.
create or replace function engine.longest_retention()
returns interval language sql stable as $$
    select make_interval(days => max(r.trace_days)) from almagest.retention as r
$$;

-- The name of the partition of a table for a month.
create or replace function engine.trace_partition(parent text, month date)
returns text language sql immutable parallel safe as $$
    select format('%s_%s', parent, to_char(month, 'YYYY_MM'))
$$;

-- The first moment of a month, in UTC whatever the session's zone is.
create or replace function engine.month_start(month date)
returns timestamptz language sql immutable parallel safe as $$
    select month::timestamp at time zone 'utc'
$$;

-- The month that a moment lies in, in UTC.
create or replace function engine.month_of(moment timestamptz)
returns date language sql immutable parallel safe as $$
    select date_trunc('month', moment at time zone 'utc')::date
$$;

-- The months that have a partition.
create or replace function engine.partitioned_months(parent text)
returns date[] language sql stable as $$
    select coalesce(array_agg(to_date(right(c.relname, 7), 'YYYY_MM') order by c.relname), '{}')
    from pg_catalog.pg_inherits as h
    join pg_catalog.pg_class as c on c.oid = h.inhrelid
    where h.inhparent = format('almagest.%I', parent)::regclass and c.relname ~ (parent || '_\d{4}_\d{2}$')
$$;

-- How many rows of a month lie in the partition for the rest, counted up to a number of them.
create or replace function engine.rest_of_month(parent text, month date, up_to int)
returns int language plpgsql stable as $$
declare
    counted int;
begin
    execute format(
        'select count(*) from (select from almagest.%I where created_at >= $1 and created_at < $2 limit $3) as r',
        parent || '_rest'
    )
    into counted
    using engine.month_start(month), engine.month_start((month + interval '1 month')::date), up_to;
    return counted;
end
$$;

-- What is to be done, in order:
--   add       a partition for a month to come; this month's too while nothing of it lies in the rest
--   unfence   take down the limit that let these be added, see engine.raise_fence
--   move      a month that is over out of the rest into a partition of its own, where it has at most so many rows; one
--             that has more stays there and ends row by row
--   detach    a month that is over for every org
--   drop      what was detached
-- at      the moment that counts as now
-- ahead   months to come that have their partition
-- most    rows that one transaction may move
create or replace function engine.retention_plan(at timestamptz, ahead int default 2, most int default 200000)
returns table (step text, parent text, month date) language plpgsql stable as $$
declare
    this_month constant date := engine.month_of(at);
    -- a partition that begins within the next day might find rows of its own in the rest, once it is there
    first_to_come constant date := engine.month_of(at + interval '1 day' + interval '1 month');
    oldest_kept constant date := engine.month_of(at - engine.longest_retention());
    has date[];
begin
    foreach parent in array engine.trace_tables() loop
        has := engine.partitioned_months(parent);
        step := 'add';
        for month in
            select m::date from generate_series(
                this_month::timestamp, first_to_come + make_interval(months => ahead - 1), interval '1 month'
            ) as m
        loop
            if not month = any(has)
                and (month >= first_to_come or engine.rest_of_month(parent, month, 1) = 0)
            then
                return next;
            end if;
        end loop;
        if exists (
            select from pg_catalog.pg_constraint as c
            where c.conrelid = format('almagest.%I', parent || '_rest')::regclass and c.conname = 'fence'
        ) then
            step := 'unfence';
            month := null;
            return next;
        end if;
        step := 'move';
        for month in
            select m::date from generate_series(
                oldest_kept::timestamp, this_month - interval '1 month', interval '1 month'
            ) as m
        loop
            if not month = any(has) and engine.rest_of_month(parent, month, most + 1) between 1 and most then
                return next;
            end if;
        end loop;
        step := 'detach';
        foreach month in array has loop
            if month < oldest_kept then
                return next;
            end if;
        end loop;
        step := 'drop';
        for month in
            select to_date(right(c.relname, 7), 'YYYY_MM') from pg_catalog.pg_class as c
            where c.relnamespace = 'almagest'::regnamespace and c.relname ~ (parent || '_\d{4}_\d{2}$')
                and not c.relispartition and obj_description(c.oid, 'pg_class') = 'expired'
        loop
            return next;
        end loop;
    end loop;
end
$$;

-- Does one step of the plan, and says whether it did: false where it has been done already.
-- Gives up with 55P03 when another run is at work, or it does not get a lock, for a tenth of a second.
create or replace function engine.retain(step text, parent text, month date)
returns boolean language plpgsql as $$
declare
    name constant text := engine.trace_partition(parent, month);
    here regclass;
    attached boolean;
begin
    perform set_config('lock_timeout', '100ms', true);
    perform pg_advisory_xact_lock(hashtextextended('almagest.retention', 0));
    here := to_regclass(format('almagest.%I', name)); -- now that nobody else makes or drops it
    attached := coalesce((select c.relispartition from pg_catalog.pg_class as c where c.oid = here), false);
    case step
        when 'unfence' then
            execute format('alter table almagest.%I drop constraint if exists fence', parent || '_rest');
        when 'add', 'move' then
            if here is not null then
                return false;
            end if;
            perform engine.add_month(parent, month, step = 'move');
        when 'detach' then
            if not attached then
                return false;
            end if;
            -- Not concurrently: Postgres refuses that beside a default partition. It is a matter of the catalog alone.
            execute format('alter table almagest.%I detach partition almagest.%I', parent, name);
            execute format('comment on table almagest.%I is ''expired''', name);
        when 'drop' then
            if here is null or attached then
                return false;
            end if;
            execute format('drop table almagest.%I', name);
    end case;
    return true;
end
$$;

-- Makes a month's partition, with the month's rows out of the rest where moves is true. It is made beside the table and
-- then attached, which, unlike "partition of", lets searches go on writing.
create or replace function engine.add_month(parent text, month date, moves boolean)
returns void language plpgsql as $$
declare
    name constant text := engine.trace_partition(parent, month);
    rest constant text := parent || '_rest';
    from_ constant timestamptz := engine.month_start(month);
    until constant timestamptz := engine.month_start((month + interval '1 month')::date);
begin
    execute format(
        'create table almagest.%I (like almagest.%I including defaults including constraints including indexes'
        ' including storage)', name, parent
    );
    execute format('alter table almagest.%I enable row level security', name);
    execute format('alter table almagest.%I force row level security', name);
    if moves then
        execute format(
            'with moved as (delete from almagest.%I where created_at >= $1 and created_at < $2 returning *)'
            ' insert into almagest.%I select * from moved', rest, name
        ) using from_, until;
    end if;
    -- proves the bounds, so that attaching does not read the rows again
    execute format(
        'alter table almagest.%I add constraint bounds check (created_at >= %L and created_at < %L)', name, from_, until
    );
    execute format(
        'alter table almagest.%I attach partition almagest.%I for values from (%L) to (%L)', parent, name, from_, until
    );
    execute format('alter table almagest.%I drop constraint bounds', name);
end
$$;

-- Before partitions are added beside a large rest: a limit on the rest that nothing of theirs lies in it, so that
-- attaching them does not read it while writers wait. Two transactions, of which the second only reads; the fence must
-- come down again (unfence) when the partitions are there. False where the rest is small, or has a fence already.
create or replace function engine.raise_fence(parent text, month date, large bigint default 16777216)
returns boolean language plpgsql as $$
declare
    rest constant text := parent || '_rest';
begin
    if pg_relation_size(format('almagest.%I', rest)::regclass) <= large then
        return false;
    end if;
    perform set_config('lock_timeout', '100ms', true);
    perform pg_advisory_xact_lock(hashtextextended('almagest.retention', 0));
    if exists (
        select from pg_catalog.pg_constraint as c
        where c.conrelid = format('almagest.%I', rest)::regclass and c.conname = 'fence'
    ) then
        return false;
    end if;
    execute format(
        'alter table almagest.%I add constraint fence check (created_at < %L) not valid', rest, engine.month_start(month)
    );
    return true;
end
$$;

-- Reads the rest, without a lock that a writer would notice, to know that its fence holds.
create or replace function engine.prove_fence(parent text)
returns void language plpgsql as $$
begin
    execute format('alter table almagest.%I validate constraint fence', parent || '_rest');
end
$$;

-- Deletes up to so many expired traces that no partition takes with it: those of orgs that keep them for a shorter time
-- than the one that keeps them the longest, and those in the rest. Returns how many; what somebody else has locked is
-- left to the next run.
create or replace function engine.expire_traces(parent text, at timestamptz, batch int)
returns int language plpgsql as $$
declare
    expired int;
begin
    execute format(
        'delete from almagest.%1$I as t using ('
        '  select o.id, o.created_at from almagest.%1$I as o'
        '  cross join almagest.retention as s'
        '  left join almagest.retention as r on r.org_id = o.org_id'
        '  where s.org_id is null'
        '    and o.created_at < $1 - make_interval(days => coalesce(r.trace_days, s.trace_days))'
        '    and o.created_at < $1 - $2'
        '    and (make_interval(days => coalesce(r.trace_days, s.trace_days)) < $3'
        '      or o.tableoid = %2$L::regclass)'
        '  limit $4 for update of o skip locked'
        ') as old where t.id = old.id and t.created_at = old.created_at and t.created_at < $1 - $2',
        parent, format('almagest.%I', parent || '_rest')
    )
    using at, (select make_interval(days => min(r.trace_days)) from almagest.retention as r),
        engine.longest_retention(), batch;
    get diagnostics expired = row_count;
    return expired;
end
$$;

-- Deletes up to so many idempotency keys whose time is over, and returns how many. A request that comes with one of
-- them after that is a new one.
create or replace function engine.expire_idempotency_keys(at timestamptz, batch int)
returns int language plpgsql as $$
declare
    expired int;
begin
    delete from almagest.idempotency_keys as k
    using (
        select o.org_id, o.principal, o.key from almagest.idempotency_keys as o
        cross join almagest.retention as s
        left join almagest.retention as r on r.org_id = o.org_id
        where s.org_id is null
            and o.created_at < at - make_interval(days => (
                select min(least(m.idempotency_days, s.idempotency_days)) from almagest.retention as m
            ))
            and o.created_at < at - make_interval(days => coalesce(r.idempotency_days, s.idempotency_days))
        limit batch
        for update of o skip locked
    ) as old
    where k.org_id = old.org_id and k.principal = old.principal and k.key = old.key;
    get diagnostics expired = row_count;
    return expired;
end
$$;

-- Deletes up to so many entries of the Hub that were closed before a moment, with who has read them; what is open
-- stays. Returns how many.
create or replace function engine.expire_hub_entries(before timestamptz, batch int)
returns int language plpgsql as $$
declare
    expired int;
begin
    delete from almagest.hub_feed as f
    using (
        select o.id from almagest.hub_feed as o where o.closed_at < before limit batch for update of o skip locked
    ) as old
    where f.id = old.id;
    get diagnostics expired = row_count;
    return expired;
end
$$;
