-- Scheduled runs: each is done once however often it is delivered, by one worker at a time, and taken up where a dead
-- worker left it. A worker holds a run by a lease that ends by itself; whatever it writes is refused once the run is
-- another's. Times are the clock's, not the transaction's: a call may have waited for another one.

-- Lets at most one call a job decide who works.
create or replace function engine.lock_job(job text)
returns void language sql as $$
    select pg_advisory_xact_lock(hashtextextended('almagest job ' || job, 0))
$$;

-- Whether a lease holds. Workers take one for minutes: one that ends hours ahead was written by a wrong clock or by
-- hand, and would keep every later run away.
create or replace function engine.lease_holds(expires_at timestamptz)
returns boolean language sql volatile as $$
    select coalesce(expires_at > clock_timestamp() and expires_at <= clock_timestamp() + interval '1 hour', false)
$$;

-- Ends runs of a job whose worker has stopped without a word, all but one of them.
create or replace function engine.end_dead_runs(job text, but bigint)
returns void language sql as $$
    with dead as (
        update almagest.job_runs as r
        set state = 'failed', finished_at = clock_timestamp(), error = 'LeaseOver: its worker stopped without a word.'
        where r.job = end_dead_runs.job and r.state = 'running' and not engine.lease_holds(r.lease_expires_at)
            and r.id is distinct from but
        returning r.id, r.finished_at, r.error
    )
    update almagest.job_steps as s set state = 'failed', finished_at = d.finished_at, error = d.error
    from dead as d
    where s.run_id = d.id and s.state = 'running'
$$;

-- Asks for a run, to be done in a stack; `run` is its id, `attempt` how often it was begun, `other` the run in the way.
-- outcome  claimed   it is this worker's for so many seconds, and longer by engine.beat_run; its steps are kept
--          done      it succeeded or was skipped before: there is nothing to do
--          running   a worker is at it, or (where this one failed before) at another run of the job
--          skipped   it is new, and another run of the job is at work: the next run does what this one would have
create or replace function engine.claim_run(
    job text, scheduled_for timestamptz, worker text, lease_seconds float8, stack text default 'local'
)
returns table (outcome text, run bigint, attempt int, other bigint) language plpgsql as $$
declare
    asked almagest.job_runs;
    lease constant interval := make_interval(secs => lease_seconds);
begin
    perform engine.lock_job(job);
    select * into asked from almagest.job_runs as r
    where r.job = claim_run.job and r.scheduled_for = claim_run.scheduled_for
    for no key update;
    run := asked.id;
    attempt := asked.attempts;
    if asked.state in ('succeeded', 'skipped') then
        outcome := 'done';
        return next;
        return;
    end if;

    perform engine.end_dead_runs(job, asked.id);
    -- itself, where its lease is good
    select r.id into other from almagest.job_runs as r
    where r.job = claim_run.job and r.state = 'running' and engine.lease_holds(r.lease_expires_at);
    if other is not null and asked.id is not null then
        outcome := 'running';
    elsif other is not null then
        insert into almagest.job_runs as r (job, scheduled_for, stack, state, started_at, finished_at, figures)
        values (
            claim_run.job, claim_run.scheduled_for, claim_run.stack, 'skipped', clock_timestamp(), clock_timestamp(),
            jsonb_build_object('other', other)
        )
        returning r.id, r.attempts into run, attempt;
        outcome := 'skipped';
    elsif asked.id is not null then
        update almagest.job_runs as r
        set state = 'running', attempts = r.attempts + 1, worker = claim_run.worker, stack = claim_run.stack,
            error = null, finished_at = null,
            heartbeat_at = clock_timestamp(), lease_expires_at = clock_timestamp() + lease
        where r.id = asked.id
        returning r.attempts into attempt;
        outcome := 'claimed';
    else
        insert into almagest.job_runs as r (
            job, scheduled_for, state, worker, stack, started_at, heartbeat_at, lease_expires_at
        )
        values (
            claim_run.job, claim_run.scheduled_for, 'running', claim_run.worker, claim_run.stack, clock_timestamp(),
            clock_timestamp(), clock_timestamp() + lease
        )
        returning r.id, r.attempts into run, attempt;
        outcome := 'claimed';
    end if;
    return next;
end
$$;

-- Whether a run is this worker's, and it stays so until the transaction ends.
create or replace function engine.holds_run(run bigint, worker text)
returns boolean language plpgsql as $$
begin
    perform from almagest.job_runs as r
    where r.id = run and r.worker = holds_run.worker and r.state = 'running'
    for no key update;
    return found;
end
$$;

-- Holds a run for so many seconds from now on; false where it is no longer this worker's.
create or replace function engine.beat_run(run bigint, worker text, lease_seconds float8)
returns boolean language plpgsql as $$
begin
    update almagest.job_runs as r
    set heartbeat_at = clock_timestamp(), lease_expires_at = clock_timestamp() + make_interval(secs => lease_seconds)
    where r.id = run and r.worker = beat_run.worker and r.state = 'running';
    return found;
end
$$;

-- Begins a step of a run, or takes it up.
-- outcome  begun  to be done; `checkpoint` is where an earlier attempt got to, null at first
--          done   an earlier attempt did it, with these `figures`
--          lost   the run is no longer this worker's
create or replace function engine.begin_step(run bigint, worker text, name text)
returns table (outcome text, figures jsonb, checkpoint jsonb) language plpgsql as $$
begin
    if not engine.holds_run(run, worker) then
        outcome := 'lost';
        return next;
        return;
    end if;
    select 'done', s.figures into outcome, figures from almagest.job_steps as s
    where s.run_id = run and s.name = begin_step.name and s.state = 'succeeded';
    if outcome is null then
        outcome := 'begun';
        insert into almagest.job_steps as s (run_id, name, position, state, started_at)
        values (
            run, begin_step.name,
            (select coalesce(max(p.position), 0) + 1 from almagest.job_steps as p where p.run_id = run),
            'running', clock_timestamp()
        )
        on conflict on constraint job_steps_pkey do update
        set state = 'running', attempts = s.attempts + 1, started_at = excluded.started_at, finished_at = null,
            error = null
        returning s.checkpoint into checkpoint;
    end if;
    return next;
end
$$;

-- Keeps where a step has got to, for the attempt that takes it up; false where the run is no longer this worker's.
create or replace function engine.save_checkpoint(run bigint, worker text, step text, checkpoint jsonb)
returns boolean language plpgsql as $$
begin
    if not engine.holds_run(run, worker) then
        return false;
    end if;
    update almagest.job_steps as s set checkpoint = save_checkpoint.checkpoint
    where s.run_id = run and s.name = step and s.state = 'running';
    return found;
end
$$;

-- Ends a step: succeeded with its figures, or failed with an error; false where the run is no longer this worker's.
create or replace function engine.end_step(run bigint, worker text, step text, figures jsonb, error text)
returns boolean language plpgsql as $$
begin
    if not engine.holds_run(run, worker) then
        return false;
    end if;
    update almagest.job_steps as s
    set state = case when end_step.error is null then 'succeeded' else 'failed' end, finished_at = clock_timestamp(),
        figures = end_step.figures, error = end_step.error
    where s.run_id = run and s.name = step and s.state = 'running';
    return found;
end
$$;

-- Ends a run: succeeded with its figures, or failed with an error; false where it is no longer this worker's.
create or replace function engine.end_run(run bigint, worker text, figures jsonb, error text)
returns boolean language plpgsql as $$
begin
    if not engine.holds_run(run, worker) then
        return false;
    end if;
    update almagest.job_runs as r
    set state = case when end_run.error is null then 'succeeded' else 'failed' end, finished_at = clock_timestamp(),
        lease_expires_at = null, figures = end_run.figures, error = end_run.error
    where r.id = run;
    update almagest.job_steps as s
    set state = 'failed', finished_at = clock_timestamp(), error = coalesce(end_run.error, 'It was not ended.')
    where s.run_id = run and s.state = 'running';
    return true;
end
$$;

-- The latest runs of a job, or of all where it is null; the last begun comes first. `alive` is whether a worker is at
-- it, `seconds` is from its first beginning to its end, null while it runs; `steps` are in order.
create or replace function engine.run_history(of_job text, most int)
returns table (
    id bigint, job text, scheduled_for timestamptz, state text, alive boolean, attempts int, started_at timestamptz,
    seconds float8, figures jsonb, error text, steps jsonb
) language sql stable as $$
    select
        r.id, r.job, r.scheduled_for, r.state,
        r.state = 'running' and engine.lease_holds(r.lease_expires_at), r.attempts, r.started_at,
        extract(epoch from r.finished_at - r.started_at)::float8, r.figures, r.error,
        coalesce(
            (
                select jsonb_agg(
                    jsonb_build_object(
                        'name', s.name, 'state', s.state, 'attempts', s.attempts,
                        'seconds', extract(epoch from s.finished_at - s.started_at)::float8,
                        'figures', s.figures, 'error', s.error
                    )
                    order by s.position
                )
                from almagest.job_steps as s where s.run_id = r.id
            ), '[]'
        )
    from almagest.job_runs as r
    where of_job is null or r.job = of_job
    order by r.started_at desc, r.id desc
    limit most
$$;

-- The latest run of each job that was begun, which those that were skipped were not. `on_schedule` is the last time
-- that its schedule is known to have come: Scheduler gives whole seconds, and a run by hand has the moment it was asked
-- for.
create or replace function engine.latest_runs()
returns table (
    id bigint, job text, scheduled_for timestamptz, state text, alive boolean, attempts int, started_at timestamptz,
    seconds float8, figures jsonb, error text, on_schedule timestamptz
) language sql stable as $$
    select
        r.id, r.job, r.scheduled_for, r.state,
        r.state = 'running' and engine.lease_holds(r.lease_expires_at), r.attempts, r.started_at,
        extract(epoch from r.finished_at - r.started_at)::float8, r.figures, r.error,
        (
            select max(o.scheduled_for) from almagest.job_runs as o
            where o.job = r.job and o.scheduled_for = date_trunc('second', o.scheduled_for)
                and o.scheduled_for <= clock_timestamp()
        )
    from (
        select distinct on (l.job) l.* from almagest.job_runs as l
        where l.state <> 'skipped'
        order by l.job, l.started_at desc, l.id desc
    ) as r
$$;

-- Deletes up to so many runs that began before a moment, with all that they found; the latest of each job stays, and
-- so does what a worker is at. Returns how many.
create or replace function engine.expire_runs(before timestamptz, batch int)
returns int language plpgsql as $$
declare
    expired int;
begin
    delete from almagest.job_runs as r
    using (
        select o.id from almagest.job_runs as o
        where o.started_at < before
            and (o.state <> 'running' or not engine.lease_holds(o.lease_expires_at))
            and o.id <> all(array(select l.id from engine.latest_runs() as l))
        limit batch
        for update of o skip locked
    ) as old
    where r.id = old.id;
    get diagnostics expired = row_count;
    return expired;
end
$$;
