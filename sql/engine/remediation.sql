-- What remediation does to the database: each function mends up to so many, does nothing where there is nothing, and
-- returns how many, or which, it mended.

-- The stack whose schedules run, as the latest run by schedule says: its time is in whole seconds, that of a run by
-- hand is not. Null where none has run.
create or replace function engine.installation()
returns text language sql stable as $$
    select r.stack from almagest.job_runs as r
    where r.scheduled_for = date_trunc('second', r.scheduled_for)
    order by r.id desc
    limit 1
$$;

-- Whether what a run found and did speaks for this installation: it was done in its stack. A machine besides has files,
-- memory and a network of its own: what it finds is kept and shown, and says nothing of the functions.
create or replace function engine.speaks(run bigint)
returns boolean language sql stable as $$
    select r.stack = coalesce(engine.installation(), r.stack) from almagest.job_runs as r where r.id = run
$$;

-- Whether a health run has been tried: a remediation run that failed has not, whatever of it was done.
create or replace function engine.was_tried(h almagest.health_runs)
returns boolean language sql stable as $$
    select coalesce((select r.state <> 'failed' from almagest.job_runs as r where r.id = (h).remediated_by), false)
$$;

-- Takes the latest health run that found something and has not been tried, of the last day; null where there is none.
-- Where an earlier attempt of this run has taken one, that is it. again: also one that has been tried, or was made in
-- the same stack besides, as a person wants it who asks by hand. What a later health run has found to be well, or
-- remediation has tried since, is past.
create or replace function engine.claim_unhealthy(run bigint, again boolean)
returns bigint language plpgsql as $$
declare
    claimed bigint := (select max(h.run_id) from almagest.health_runs as h where h.remediated_by = run);
begin
    if claimed is not null then
        return claimed;
    end if;
    perform pg_advisory_xact_lock(hashtextextended('almagest.remediation', 0));
    with recent as materialized (
        select h.*, engine.was_tried(h) as tried from almagest.health_runs as h
        join almagest.job_runs as made on made.id = h.run_id
        join almagest.job_runs as mine on mine.id = run
        where h.checked_at > now() - interval '24 hours'
            and (engine.speaks(h.run_id) or (again and made.stack = mine.stack))
    )
    update almagest.health_runs as h set remediated_by = run
    where h.run_id = (
        select l.run_id from recent as l
        where l.status <> 'ok' and (not l.tried or again)
            and not exists (
                select from recent as n
                where n.checked_at > l.checked_at and (n.status = 'ok' or (n.tried and not again))
            )
        order by l.checked_at desc
        limit 1
    )
    returning h.run_id into claimed;
    return claimed;
end
$$;

-- When a check last passed here; -infinity where it never has.
create or replace function engine.last_passed(check_name text)
returns timestamptz language sql stable as $$
    select coalesce((
        select c.checked_at from almagest.health_checks as c
        where c.name = check_name and c.status = 'ok' and engine.speaks(c.run_id)
        order by c.checked_at desc
        limit 1
    ), '-infinity')
$$;

-- How often an action was tried in vain before this run, since its check last passed, when it had all of these kinds to
-- mend: what comes to it anew has not been tried. One that got somewhere and left the rest was not in vain.
create or replace function engine.tries_in_vain(check_name text, action text, kinds text[], run bigint)
returns int language sql stable as $$
    select count(*)::int from almagest.remediations as r
    where r.check_name = tries_in_vain.check_name and r.action = tries_in_vain.action and r.run_id <> run
        and r.state in ('unchanged', 'failed') and engine.speaks(r.run_id)
        and r.started_at > engine.last_passed(tries_in_vain.check_name)
        and kinds <@ array(select b.key from jsonb_each(r.before) as b where b.value not in ('0', 'null'))
$$;

-- What was tried for a check since it last passed, the last twenty of it: [{what, when, outcome}].
create or replace function engine.tried(check_name text)
returns jsonb language sql stable as $$
    select coalesce(jsonb_agg(
        jsonb_build_object('what', r.action, 'when', r.started_at, 'outcome', r.state, 'before', r.before, 'after', r.after)
        order by r.id
    ), '[]')
    from (
        select t.* from almagest.remediations as t
        where t.check_name = tried.check_name and t.action <> 'none'
            and t.started_at > engine.last_passed(tried.check_name) and engine.speaks(t.run_id)
        order by t.id desc
        limit 20
    ) as r
$$;

-- Keeps what one action did; once for a run, check and action, also where the constraint that says so is gone.
create or replace function engine.record_remediation(done almagest.remediations)
returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock(hashtextextended('almagest.job_runs', (done).run_id));
    update almagest.remediations as r
    set state = (done).state, before = coalesce((done).before, '{}'), after = coalesce((done).after, '{}'),
        error = (done).error, started_at = (done).started_at, finished_at = clock_timestamp()
    where r.run_id = (done).run_id and r.check_name = (done).check_name and r.action = (done).action;
    if not found then
        insert into almagest.remediations (
            run_id, health_run_id, check_name, action, attempt, state, before, after, error, started_at, finished_at
        ) values (
            (done).run_id, (done).health_run_id, (done).check_name, (done).action, (done).attempt, (done).state,
            coalesce((done).before, '{}'), coalesce((done).after, '{}'), (done).error, (done).started_at,
            clock_timestamp()
        );
    end if;
end
$$;

-- Has items indexed anew, at once, and returns which: what they say stays found by its words meanwhile. Until they have
-- their vectors, or are edited, or fail of something else, their index_error says that they are of these.
create or replace function engine.mark_for_index(items uuid[])
returns uuid[] language sql as $$
    with marked as (
        update almagest.items as i
        set index_status = case
                when exists (select from almagest.chunks as k where k.item_id = i.id and k.version = i.version) then 'text_ready'
                else 'pending'
            end,
            index_error = 'orphaned', index_attempts = 0, index_after = now(), lease_owner = null, lease_expires_at = null
        where i.id = any(items) and i.index_status in ('search_ready', 'text_ready')
        returning i.id
    )
    select coalesce(array_agg(m.id), '{}') from marked as m
$$;

-- How many of some items are not indexed yet.
create or replace function engine.count_waiting(items uuid[])
returns bigint language sql stable as $$
    select count(*) from almagest.items as i where i.id = any(items) and i.index_status <> 'search_ready'
$$;

-- Has up to so many items indexed anew whose chunks lack a vector of the model in force, or that lack chunks; which.
create or replace function engine.mark_orphans(kind text, model text, most int)
returns uuid[] language sql as $$
    select engine.mark_for_index(array(
        select distinct o.item_id
        from (
            select w.item_id from engine.chunks_without_vectors() as w where kind = 'chunks_without_vectors'
            union all
            select t.item_id from engine.chunks_without_terms() as t where kind = 'chunks_without_terms'
            union all
            select a.item_id from engine.chunks_of_another_model(engine.model_in_force(model)) as a
            where kind = 'chunks_of_another_model'
            union all
            select c.item_id from engine.items_without_chunks() as c where kind = 'items_without_chunks'
        ) as o
        limit most
    ))
$$;

-- Deletes up to so many vectors of other models that stand beside one of the model in force.
create or replace function engine.delete_superfluous_vectors(model text, most int)
returns int language plpgsql as $$
declare
    deleted int;
begin
    delete from almagest.embeddings as e
    using (
        select * from engine.superfluous_vectors(engine.model_in_force(model)) limit most
    ) as s
    where e.chunk_id = s.chunk_id and e.model_id = s.model_id;
    get diagnostics deleted = row_count;
    return deleted;
end
$$;

-- Deletes up to so many vectors of zeros. The chunks then lack a vector, which is mended by indexing their items.
create or replace function engine.delete_zero_vectors(most int)
returns int language plpgsql as $$
declare
    deleted int;
begin
    delete from almagest.embeddings as e
    where (e.chunk_id, e.model_id) in (select z.chunk_id, z.model_id from engine.zero_vectors() as z limit most);
    get diagnostics deleted = row_count;
    return deleted;
end
$$;

-- Deletes up to so many chunks of no item, with their terms and vectors.
create or replace function engine.delete_chunks_without_item(most int)
returns int language plpgsql as $$
declare
    deleted int;
begin
    delete from almagest.chunks as k
    where k.id in (select o.chunk_id from engine.chunks_without_item() as o limit most);
    get diagnostics deleted = row_count;
    return deleted;
end
$$;

-- Deletes the terms and vectors of up to so many chunks that are not there.
create or replace function engine.delete_rows_without_chunk(most int)
returns int language plpgsql as $$
declare
    orphans constant bigint[] := array(select o.chunk_id from engine.rows_without_chunk() as o limit most);
    terms int;
    vectors int;
begin
    delete from almagest.lexical as l where l.chunk_id = any(orphans);
    get diagnostics terms = row_count;
    delete from almagest.embeddings as e where e.chunk_id = any(orphans);
    get diagnostics vectors = row_count;
    return terms + vectors;
end
$$;

-- Gives back what dead workers hold: items are indexed by the next worker, runs count as failed and are taken up when
-- their event comes again.
create or replace function engine.release_leases(since interval)
returns int language plpgsql as $$
declare
    items int;
    runs int;
begin
    update almagest.items as i
    set index_status = case
            when exists (select from almagest.chunks as k where k.item_id = i.id and k.version = i.version) then 'text_ready'
            else 'pending'
        end,
        index_after = now(), lease_owner = null, lease_expires_at = null
    where i.index_status = 'indexing' and i.id in (select o.item_id from engine.leases_over(since) as o);
    get diagnostics items = row_count;
    select count(*) into runs from engine.leases_over(since) as o where o.run_id is not null;
    perform engine.lock_job(over.job), engine.end_dead_runs(over.job, null)
    from (
        select distinct r.job from engine.leases_over(since) as o join almagest.job_runs as r on r.id = o.run_id
    ) as over;
    return items + runs;
end
$$;

-- Counts up to so many orgs again whose statistics are off.
create or replace function engine.recount_drifted(most int)
returns int language plpgsql as $$
declare
    org uuid;
    counted int := 0;
begin
    for org in select d.org_id from engine.drifted_orgs() as d limit most loop
        perform engine.count_org(org, 300);
        counted := counted + 1;
    end loop;
    return counted;
end
$$;

-- The partitions of a table, for an index that has to be made on each of them.
create or replace function engine.partitions_of(parent text)
returns table (name text) language sql stable as $$
    select c.relname from pg_catalog.pg_inherits as h
    join pg_catalog.pg_class as c on c.oid = h.inhrelid
    where h.inhparent = to_regclass(format('almagest.%I', parent))
    order by 1
$$;

-- What a `reindex concurrently` that broke off has left beside an index.
create or replace function engine.leftovers_of(name text)
returns table (name text) language sql stable as $$
    select f.name from engine.index_faults() as f
    where f.fault = 'leftover' and regexp_replace(f.name, '_cc(new|old)[0-9]*$', '') = $1
$$;
