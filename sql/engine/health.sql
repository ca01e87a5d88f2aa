-- What the health checks ask of the database. Figures and names of tables, never content; each in bounded time, or cut
-- off by the statement_timeout of whoever asks.

-- Tables of the schema that cannot be read or written by the role that asks, that are not there though they are
-- expected, or whose row level security is not forced.
--   fault  missing, unreadable, unwritable or unforced
-- The write is one that changes no row: it needs the rights, the columns and a database that takes writes, and leaves
-- nothing to be rolled back. (crud_integrity writes rows.)
create or replace function engine.table_faults(expected text[])
returns table (name text, fault text) language plpgsql
-- a role that policies bind is refused, instead of being shown an empty table
set row_security = off set search_path = '' as $$
declare
    t record;
begin
    return query
    select e, 'missing' from unnest(expected) as e
    where not exists (
        select from pg_catalog.pg_class as c
        where c.relnamespace = 'almagest'::regnamespace and c.relname = e and c.relkind in ('r', 'p')
    );
    for t in
        select
            c.relname,
            c.relrowsecurity and (c.relforcerowsecurity or c.relname in ('migrations', 'code_files')) as forced,
            (
                select a.attname from pg_catalog.pg_attribute as a
                where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attidentity = ''
                    and a.attgenerated = ''
                order by a.attnum
                limit 1
            ) as column_name
        from pg_catalog.pg_class as c
        where c.relnamespace = 'almagest'::regnamespace and c.relkind in ('r', 'p')
    loop
        name := t.relname;
        if not t.forced then
            fault := 'unforced';
            return next;
        end if;
        begin
            execute format('select from almagest.%I limit 1', t.relname);
        exception when others then
            fault := 'unreadable';
            return next;
        end;
        begin
            execute format('update almagest.%1$I set %2$I = %2$I where false', t.relname, t.column_name);
            if not (
                has_table_privilege(format('almagest.%I', t.relname), 'insert')
                and has_table_privilege(format('almagest.%I', t.relname), 'delete')
            ) then
                fault := 'unwritable';
                return next;
            end if;
        exception when others then
            fault := 'unwritable';
            return next;
        end;
    end loop;
end
$$;

-- How many tables of the schema there are.
create or replace function engine.count_tables()
returns int language sql stable as $$
    select count(*)::int from pg_catalog.pg_class as c
    where c.relnamespace = 'almagest'::regnamespace and c.relkind in ('r', 'p')
$$;

-- What those may reach who may reach nothing: tables, views and functions with a grant to anon, authenticated or all.
create or replace function engine.open_doors()
returns table (role text, name text) language sql stable set search_path = '' as $$
    select r.role, c.oid::regclass::text
    from pg_catalog.pg_class as c
    cross join unnest(array['anon', 'authenticated']) as r (role)
    where c.relnamespace::regnamespace::text in ('almagest', 'dashboard') and c.relkind in ('r', 'p', 'v', 'm')
        and (
            has_table_privilege(r.role, c.oid, 'select, insert, update, delete, truncate')
            or has_any_column_privilege(r.role, c.oid, 'select, insert, update')
        )
    union all
    select r.role, p.oid::regprocedure::text
    from pg_catalog.pg_proc as p
    cross join unnest(array['anon', 'authenticated']) as r (role)
    where p.pronamespace::regnamespace::text in ('almagest', 'engine', 'api')
        and has_function_privilege(r.role, p.oid, 'execute')
    order by 1, 2
$$;

-- The number of the model in force as the orphans' queries take it: 0, which no model has, for one that has made no
-- vector here; null where it is not known which is in force.
create or replace function engine.model_in_force(model text)
returns smallint language sql stable as $$
    select case when model is not null then coalesce(engine.model_id(model), 0::smallint) end
$$;

-- Chunks that search reads today, of items that are marked ready, with no vector at all.
create or replace function engine.chunks_without_vectors()
returns table (chunk_id bigint, item_id uuid) language sql stable as $$
    select k.id, k.item_id
    from almagest.chunks as k
    join almagest.items as i on i.id = k.item_id and i.version = k.version
    where i.index_status = 'search_ready'
        and not exists (select from almagest.embeddings as e where e.chunk_id = k.id)
$$;

-- The same with no terms, or with none of those that they are said to have: no search finds them by their words.
create or replace function engine.chunks_without_terms()
returns table (chunk_id bigint, item_id uuid) language sql stable as $$
    select k.id, k.item_id
    from almagest.chunks as k
    join almagest.items as i on i.id = k.item_id and i.version = k.version
    where i.index_status = 'search_ready'
        and not exists (
            select from almagest.lexical as l where l.chunk_id = k.id and (l.length = 0 or length(l.terms) > 0)
        )
$$;

-- Rows that search reads, of an item whose copies of who may see it, or of its state, are not the item's: they are
-- found by whom they should not be, up to the second privacy layer, or not found by whom they should. The state is
-- engine.state_of_copy, whose call for each of a million rows would take ten times as long.
create or replace function engine.copies_that_differ()
returns table (chunk_id bigint, item_id uuid) language sql stable as $$
    select l.chunk_id, l.item_id
    from almagest.lexical as l
    join almagest.items as i on i.id = l.item_id
    where (l.org_id, l.user_id, l.client_id, l.deal_id, l.agent_ids)
        is distinct from (i.org_id, i.user_id, i.client_id, i.deal_id, i.agent_ids)
        or case
            when i.version = 1 then l.state <> i.state
            else l.state <> (
                select case when k.version < i.version then 'replaced' else i.state end
                from almagest.chunks as k where k.id = l.chunk_id
            )
        end
    union all
    select e.chunk_id, e.item_id
    from almagest.embeddings as e
    join almagest.items as i on i.id = e.item_id
    where (e.org_id, e.user_id, e.client_id, e.deal_id, e.agent_ids)
        is distinct from (i.org_id, i.user_id, i.client_id, i.deal_id, i.agent_ids)
        or case
            when i.version = 1 then e.state <> i.state
            else e.state <> (
                select case when k.version < i.version then 'replaced' else i.state end
                from almagest.chunks as k where k.id = e.chunk_id
            )
        end
$$;

-- The same with vectors of other models than the one in force alone.
create or replace function engine.chunks_of_another_model(in_force smallint)
returns table (chunk_id bigint, item_id uuid) language sql stable as $$
    select e.chunk_id, e.item_id
    from almagest.embeddings as e
    join almagest.chunks as k on k.id = e.chunk_id
    join almagest.items as i on i.id = k.item_id and i.version = k.version
    where e.model_id <> in_force and i.index_status = 'search_ready'
        and not exists (
            select from almagest.embeddings as r where r.chunk_id = e.chunk_id and r.model_id = in_force
        )
$$;

-- Vectors of other models beside one of the model in force.
create or replace function engine.superfluous_vectors(in_force smallint)
returns table (chunk_id bigint, model_id smallint) language sql stable as $$
    select e.chunk_id, e.model_id
    from almagest.embeddings as e
    where e.model_id <> in_force
        and exists (select from almagest.embeddings as r where r.chunk_id = e.chunk_id and r.model_id = in_force)
$$;

-- Vectors of zeros, which nothing is near to. Reads the vectors one by one, but of each hardly more than its first
-- number.
create or replace function engine.zero_vectors()
returns table (chunk_id bigint, model_id smallint) language sql stable as $$
    select e.chunk_id, e.model_id
    from almagest.embeddings as e
    where e.vector operator(@extschema:vector@.=) array_fill(0::real, array[384])::@extschema:vector@.halfvec
$$;

-- Up to so many chunks from anywhere in the table, with what is embedded of each and the vector of a model that it has;
-- of items that are marked ready. Costs the same however many there are.
create or replace function engine.sample_vectors(model text, most int)
returns table (item_id uuid, title text, heading_path text, body text, vector real[]) language sql volatile as $$
    select i.id, i.title, k.heading_path, k.text, e.vector::real[]
    from (
        select distinct near.id
        from (
            -- one of each equal part of the table, so that of a small one all are drawn
            select b.lowest + floor((part + random()) * (b.highest - b.lowest + 1) / most)::bigint as at
            from (select min(c.id) as lowest, max(c.id) as highest from almagest.chunks as c) as b
            cross join generate_series(0, most - 1) as part
            offset 0 -- drawn once each
        ) as drawn
        cross join lateral (
            select c.id from almagest.chunks as c
            where c.id >= drawn.at
            order by c.id
            limit 1
        ) as near
    ) as picked
    join almagest.chunks as k on k.id = picked.id
    join almagest.items as i on i.id = k.item_id and i.version = k.version and i.index_status = 'search_ready'
    join almagest.embeddings as e on e.chunk_id = k.id and e.model_id = engine.model_id(model)
$$;

-- Chunks of no item.
create or replace function engine.chunks_without_item()
returns table (chunk_id bigint) language sql stable as $$
    select k.id from almagest.chunks as k
    where not exists (select from almagest.items as i where i.id = k.item_id)
$$;

-- Terms and vectors of no chunk.
create or replace function engine.rows_without_chunk()
returns table (chunk_id bigint) language sql stable as $$
    select l.chunk_id from almagest.lexical as l
    where not exists (select from almagest.chunks as k where k.id = l.chunk_id)
    union all
    select e.chunk_id from almagest.embeddings as e
    where not exists (select from almagest.chunks as k where k.id = e.chunk_id)
$$;

-- Items that count as indexed and have no chunk: no search finds them.
create or replace function engine.items_without_chunks()
returns table (item_id uuid) language sql stable as $$
    select i.id from almagest.items as i
    where i.index_status in ('search_ready', 'text_ready')
        and not exists (select from almagest.chunks as k where k.item_id = i.id and k.version = i.version)
$$;

-- Items that remediation has marked to be indexed again, and that are not yet: until then they are orphans, whoever
-- marked them. What was written or edited since waits in the ordinary way, and is none.
create or replace function engine.items_to_index_again()
returns table (item_id uuid) language sql stable as $$
    select i.id from almagest.items as i
    where i.index_status <> 'search_ready' and i.index_error = 'orphaned'
$$;

-- Leases of items and of runs that were over a while ago, and that nobody has taken up; one without an end is over, and
-- so is one that ends hours ahead, which no worker takes.
create or replace function engine.leases_over(since interval)
returns table (item_id uuid, run_id bigint) language sql stable as $$
    select i.id, null::bigint from almagest.items as i
    where i.index_status = 'indexing'
        and (coalesce(i.lease_expires_at, '-infinity') < now() - since or i.lease_expires_at > now() + interval '1 hour')
    union all
    select null, r.id from almagest.job_runs as r
    where r.state = 'running' and (r.lease_expires_at < now() - since or r.lease_expires_at > now() + interval '1 hour')
$$;

-- Up to so many terms that many of an org's chunks hold, by a few rows of it, with how many its statistics say and how
-- many are counted now, each up to as many as a search counts itself. What is not frequent has no statistics, and then
-- counts as right. Looks terms up by the word index, however large a share of the table they are thought to be.
create or replace function engine.counted_terms(org uuid, most int)
returns table (term text, known bigint, counted bigint) language sql stable
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
    select
        common.term, least(coalesce(kept.documents, least(live.documents, 300)), engine.most_counted()), live.documents
    from (
        select w.term
        from (
            select l.terms from almagest.lexical as l where l.org_id = org and l.state = 'active' limit 50
        ) as drawn
        cross join unnest(tsvector_to_array(drawn.terms)) as w (term)
        group by w.term
        order by count(*) desc, w.term
        limit most
    ) as common
    cross join lateral (
        select sum(t.documents)::bigint as documents from almagest.term_statistics as t
        where t.org_id = org and t.term = common.term
    ) as kept
    cross join lateral (
        select count(*) as documents
        from (
            select
            from (
                select l.* from almagest.lexical as l
                where almagest.org_terms(l.org_id, l.terms) @@ engine.org_term(org, common.term)::tsquery
                offset 0 -- by this index alone
            ) as l
            where l.org_id = org and l.state = 'active'
            limit engine.most_counted()
        ) as held
    ) as live
$$;

-- Large orgs whose statistics are off by more than a tenth: in chunks, in their length, or, of ten orgs by chance, in
-- the terms that many chunks hold. Reads the table once.
create or replace function engine.drifted_orgs()
returns table (org_id uuid) language sql stable as $$
    with known as materialized (
        select p.org_id, sum(p.documents) as documents, sum(p.total_length) as total_length
        from almagest.partition_statistics as p
        group by p.org_id
    )
    select s.org_id
    from known as s
    left join (
        select l.org_id, count(*) as documents, sum(l.length) as total_length
        from almagest.lexical as l
        where l.state = 'active' and l.org_id in (select p.org_id from almagest.partition_statistics as p)
        group by l.org_id
    ) as counted on counted.org_id = s.org_id
    where abs(s.documents - coalesce(counted.documents, 0)) * 10 > coalesce(counted.documents, 0)
        or abs(s.total_length - coalesce(counted.total_length, 0)) * 10 > coalesce(counted.total_length, 0)
    union
    select s.org_id
    from (select k.org_id from known as k order by random() limit 10) as s
    cross join lateral engine.counted_terms(s.org_id, 10) as t
    group by s.org_id
    having sum(abs(t.known - t.counted)) * 10 > sum(t.counted)
$$;

-- How many groups of rows are the same to a unique index, that is missing or invalid: while there are any, it cannot be
-- made, and Postgres' log would quote one of them. 0 for an index that is not unique. definition as in
-- engine.expected_indexes, null for one that only its constraint describes.
create or replace function engine.duplicates_of(name text, definition text)
returns bigint language plpgsql stable set search_path = '' as $$
declare
    described constant text := coalesce(definition, pg_get_indexdef(to_regclass(format('almagest.%I', name))));
    head constant text := split_part(described, ' WHERE ', 1);
    same constant text := substring(head from ' USING btree \((.*)\)');
    groups bigint;
begin
    if head not like 'CREATE UNIQUE INDEX %' then
        return 0;
    end if;
    execute format(
        'select count(*) from (select from %s where %s and %s group by %s having count(*) > 1) as g',
        substring(head from ' ON (?:ONLY )?(\S+) USING '),
        coalesce(nullif(substr(described, length(head) + length(' WHERE ') + 1), ''), 'true'),
        case when head like '% NULLS NOT DISTINCT' then 'true' else format('row(%s) is not null', same) end,
        same
    )
    into groups;
    return groups;
end
$$;

-- How many orphans of a kind there are; null where that cannot be told without knowing the model in force.
create or replace function engine.count_orphans(kind text, model text)
returns bigint language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
    in_force constant smallint := engine.model_in_force(model);
begin
    return case kind
        when 'chunks_without_vectors' then (select count(*) from engine.chunks_without_vectors())
        when 'chunks_without_terms' then (select count(*) from engine.chunks_without_terms())
        when 'copies_that_differ' then (select count(*) from engine.copies_that_differ())
        when 'chunks_of_another_model' then (
            select count(distinct o.chunk_id) from engine.chunks_of_another_model(in_force) as o where in_force is not null
            having in_force is not null
        )
        when 'superfluous_vectors' then (
            select count(*) from engine.superfluous_vectors(in_force) having in_force is not null
        )
        when 'zero_vectors' then (select count(*) from engine.zero_vectors())
        when 'chunks_without_item' then (select count(*) from engine.chunks_without_item())
        when 'rows_without_chunk' then (select count(*) from engine.rows_without_chunk())
        when 'items_without_chunks' then (select count(*) from engine.items_without_chunks())
        when 'items_to_index_again' then (select count(*) from engine.items_to_index_again())
        when 'leases_over' then (select count(*) from engine.leases_over(interval '10 minutes'))
        when 'drifted_statistics' then (select count(*) from engine.drifted_orgs())
        when 'indexes_missing' then (select count(*) from engine.index_faults() as f where f.fault = 'missing')
        when 'indexes_invalid' then (select count(*) from engine.index_faults() as f where f.fault in ('invalid', 'leftover'))
        when 'duplicates' then (
            select coalesce(sum(engine.duplicates_of(f.name, f.definition)), 0)::bigint
            from engine.index_faults() as f where f.fault in ('missing', 'invalid')
        )
        when 'indexes_changed' then (select count(*) from engine.index_faults() as f where f.fault = 'changed')
    end;
end
$$;

-- Since when an item waits to be indexed. Where a try has failed, or it is due in the future, when it is due says
-- nothing of that; one that is in its first try waits no more.
create or replace function engine.waits_since(i almagest.items)
returns timestamptz language sql stable as $$
    select case
        when (i).index_attempts = 0 and (i).index_after <= now() then (i).index_after
        when (i).index_attempts = 1 and engine.lease_holds((i).lease_expires_at) then now()
        else least((i).updated_at, now())
    end
$$;

-- How many items wait to be indexed, and for how many seconds the oldest of them has.
create or replace function engine.backlog()
returns table (items bigint, seconds double precision) language sql stable as $$
    select count(*), coalesce(extract(epoch from now() - min(engine.waits_since(i))), 0)
    from almagest.items as i
    where i.index_status <> 'search_ready'
$$;

-- When each of some jobs last succeeded; null where it never has.
create or replace function engine.last_successes(jobs text[])
returns table (job text, succeeded_at timestamptz) language sql stable as $$
    select j, (
        select max(r.finished_at) from almagest.job_runs as r where r.job = j and r.state = 'succeeded'
    )
    from unnest(jobs) as j
$$;

-- Since when this installation can have had scheduled runs.
create or replace function engine.installed_at()
returns timestamptz language sql stable as $$
    select m.applied_at from almagest.migrations as m where m.version = 12
$$;

-- Tables of traces that lack the partition of the month after a moment's.
create or replace function engine.partitions_missing(at timestamptz)
returns table (name text) language sql stable as $$
    select engine.trace_partition(t, engine.month_of(at + interval '1 month'))
    from unnest(engine.trace_tables()) as t
    where not engine.month_of(at + interval '1 month') = any(engine.partitioned_months(t))
$$;

-- In how many rows of each table of one org a word still stands, where it does; the audit skeleton aside. Rows of an
-- item are found by the item, others by the org, those of neither are read one by one: these tables are small.
create or replace function engine.residue(org uuid, item uuid, word text)
returns table (name text, hits bigint) language plpgsql stable set search_path = '' as $$
declare
    t record;
begin
    for t in
        select
            c.relname, coalesce(bool_or(a.attname = 'item_id'), false) as of_item,
            coalesce(bool_or(a.attname = 'org_id'), false) as of_org
        from pg_catalog.pg_class as c
        join pg_catalog.pg_attribute as a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        where c.relnamespace = 'almagest'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
            and c.relname not in ('audit_log', 'code_files')
        group by c.relname
    loop
        name := t.relname;
        execute format(
            'select count(*) from almagest.%I as t where %s and strpos(t::text, $3) > 0', t.relname,
            case when t.relname = 'items' then 't.org_id = $1' when t.of_item then 't.item_id = $2'
                when t.of_org then 't.org_id = $1' else 'true' end
        )
        into hits using org, item, word;
        if hits > 0 then
            return next;
        end if;
    end loop;
end
$$;

-- Keeps what a check found in a run: once a run, the last one counts, also where the constraint that says so is gone.
create or replace function engine.store_check(run bigint, found almagest.health_checks)
returns void language plpgsql as $$
declare
    result alias for $2; -- found is a variable of plpgsql's own
begin
    perform pg_advisory_xact_lock(hashtextextended('almagest.job_runs', run));
    delete from almagest.health_checks as c where c.run_id = run and c.name = (result).name;
    insert into almagest.health_checks (
        run_id, name, status, measured, threshold, unit, sentence, figures, duration_ms
    ) values (
        run, (result).name, (result).status, (result).measured, (result).threshold, (result).unit, (result).sentence,
        coalesce((result).figures, '{}'), (result).duration_ms
    );
end
$$;

-- Keeps the worst status of a run's checks, and returns it; failed where there are none.
create or replace function engine.store_health_run(run bigint)
returns text language plpgsql as $$
declare
    worst constant text := (
        select case
            when count(*) = 0 or bool_or(c.status = 'failed') then 'failed'
            when bool_or(c.status = 'degraded') then 'degraded'
            else 'ok'
        end
        from almagest.health_checks as c
        where c.run_id = run
    );
begin
    perform pg_advisory_xact_lock(hashtextextended('almagest.job_runs', run));
    update almagest.health_runs as h set status = worst where h.run_id = run;
    if not found then
        insert into almagest.health_runs (run_id, status) values (run, worst);
    end if;
    return worst;
end
$$;
