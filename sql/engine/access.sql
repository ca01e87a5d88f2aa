-- What has to be there so that the request path may do its work and nothing else, and what of it is not: rights,
-- functions, policies and constraints. The lists stand here alone, and a test compares them with a new database. Those
-- of indexes are in indexes.sql.

-- Tables that almagest_reader reads, each by a policy `reader` for select; see row_security.sql.
create or replace function engine.reader_tables()
returns text[] language sql immutable parallel safe as $$
    select array[
        'chunks', 'clients', 'deals', 'hub_feed', 'hub_marks', 'item_tags', 'item_versions', 'items', 'pins',
        'projects', 'retrievals', 'strength_signals'
    ]
$$;

-- Functions of the engine that almagest_reader calls, or its policies do; see privileges.sql.
create or replace function engine.reader_calls()
returns text[] language sql immutable parallel safe as $$
    select array[
        'best_words', 'cjk_signs', 'current_caller', 'fold', 'folded_form', 'folded_pieces', 'hub_rank',
        'hub_visible', 'identifier_forms', 'identifiers', 'mark_pattern', 'marked_words', 'readable', 'snippet',
        'stands_whole', 'term_signs', 'term_number', 'term_words', 'visible', 'without_cjk'
    ]
$$;

-- Everything that guards or answers, each with a digest of what it says: functions, policies and constraints.
-- `almagest migrate` keeps in almagest.made_objects what its files have made. Not those of the tables of traces by
-- month, which come and go by themselves.
create or replace function engine.made()
returns table (kind text, name text, digest text) language sql stable set search_path = '' as $$
    select 'function', p.oid::regprocedure::text, md5(pg_get_functiondef(p.oid) || pg_get_userbyid(p.proowner))
    from pg_catalog.pg_proc as p
    where p.pronamespace::regnamespace::text in ('almagest', 'engine', 'api') and p.prokind <> 'a'
    union all
    select
        'policy', p.polname || ' of ' || c.relname,
        md5(
            row(
                p.polcmd, p.polpermissive, array(select r::regrole::text from unnest(p.polroles) as r order by 1),
                pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid)
            )::text
        )
    from pg_catalog.pg_policy as p
    join pg_catalog.pg_class as c on c.oid = p.polrelid and c.relnamespace = 'almagest'::regnamespace
    union all
    select 'constraint', k.conname || ' of ' || c.relname, md5(pg_get_constraintdef(k.oid))
    from pg_catalog.pg_constraint as k
    join pg_catalog.pg_class as c on c.oid = k.conrelid and c.relnamespace = 'almagest'::regnamespace
    -- what is not null has a constraint in newer versions of Postgres alone
    where k.contype <> 'n'
        and not exists (select from unnest(engine.trace_tables()) as t where starts_with(c.relname, t || '_'))
$$;

-- Roles that may not do what they have to, and functions, policies and constraints that are not as they were made.
--   uncallable           service_role may not call a function of the API
--   uncallable_owner     who asks may not call a function of the engine or of the API
--   uncallable_reader    almagest_reader may not call a function that it reads with
--   unreadable_reader    almagest_reader may not read a table that it reads
--   unbound_reader       no policy binds almagest_reader
--   function_missing, function_changed, function_unexpected, and the same of policy and constraint
-- Where nothing has been kept of what was made, that is not compared; of a table that is missing, it is missing too.
create or replace function engine.access_faults()
returns table (name text, fault text) language sql stable set search_path = '' as $$
    select p.oid::regprocedure::text, 'uncallable'
    from pg_catalog.pg_proc as p
    where p.pronamespace = 'api'::regnamespace
        and not (
            has_function_privilege('service_role', p.oid, 'execute')
            and has_schema_privilege('service_role', 'api', 'usage')
        )
    union all
    select p.oid::regprocedure::text, 'uncallable_owner'
    from pg_catalog.pg_proc as p
    where p.pronamespace in ('api'::regnamespace, 'engine'::regnamespace)
        and not has_function_privilege(p.oid, 'execute')
    union all
    select p.oid::regprocedure::text, 'uncallable_reader'
    from pg_catalog.pg_proc as p
    where p.pronamespace = 'engine'::regnamespace and p.proname = any(engine.reader_calls())
        and not (
            has_function_privilege('almagest_reader', p.oid, 'execute')
            and has_schema_privilege('almagest_reader', 'engine', 'usage')
        )
    union all
    select t, 'unreadable_reader'
    from unnest(engine.reader_tables()) as t
    where to_regclass('almagest.' || t) is not null
        and not (
            has_table_privilege('almagest_reader', 'almagest.' || t, 'select')
            and has_schema_privilege('almagest_reader', 'almagest', 'usage')
        )
    union all
    select r.rolname, 'unbound_reader'
    from pg_catalog.pg_roles as r
    where r.rolname = 'almagest_reader' and (r.rolsuper or r.rolbypassrls)
    union all
    select
        name,
        kind || case
            when kept.digest is null then '_unexpected'
            when made.digest is null then '_missing'
            else '_changed'
        end
    from engine.made() as made
    full join almagest.made_objects as kept using (kind, name)
    where made.digest is distinct from kept.digest
        and exists (select from almagest.made_objects)
        and (
            made.digest is not null or kind = 'function'
            or to_regclass('almagest.' || split_part(name, ' of ', 2)) is not null
        )
    order by 2, 1
$$;
