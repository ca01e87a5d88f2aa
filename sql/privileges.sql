-- Who may call what; applied after everything else. Nothing is for the public: the API is for service_role alone, the
-- engine for its owner, and the reader's functions for the owner as well. What was opened by hand is closed again here,
-- which `almagest migrate --reapply` is for; what belongs to another role than the one that migrates is left to people.
do $$
declare
    f record;
begin
    for f in
        select p.oid::regprocedure as name, n.nspname as schema, pg_get_userbyid(p.proowner) as owner
        from pg_catalog.pg_proc as p
        join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
        where n.nspname in ('almagest', 'engine', 'api') and pg_has_role(p.proowner, 'member')
    loop
        if f.owner = 'almagest_reader' then
            set local role almagest_reader;
            execute format('revoke all on function %s from public, anon, authenticated, service_role', f.name);
            execute format('grant execute on function %s to %I', f.name, session_user);
            reset role;
        else
            execute format('revoke all on function %s from public, anon, authenticated', f.name);
            execute format(
                case when f.schema = 'api' then 'grant execute on function %s to service_role'
                else 'revoke all on function %s from service_role' end, f.name
            );
        end if;
    end loop;
end
$$;

-- Tables are for their owner, and for the reader as row_security.sql says; row level security binds the owner, too, but
-- on the migrations' own ledger. Only what differs is altered, since that waits for whoever uses the table.
do $$
declare
    t record;
begin
    for t in
        select c.oid::regclass as name, c.relkind = 'S' as is_sequence, c.relkind in ('r', 'p') as is_table,
            c.relrowsecurity as secured,
            c.relforcerowsecurity or c.relname in ('migrations', 'code_files') as forced,
            pg_get_userbyid(c.relowner) as owner
        from pg_catalog.pg_class as c
        where c.relnamespace = 'almagest'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'S')
            and pg_has_role(c.relowner, 'member')
    loop
        execute format(
            'revoke all on %s %s from public, anon, authenticated, service_role cascade',
            case when t.is_sequence then 'sequence' else 'table' end, t.name
        );
        execute format(
            'grant all on %s %s to %I', case when t.is_sequence then 'sequence' else 'table' end, t.name, t.owner
        );
        if t.is_table and not t.secured then
            execute format('alter table %s enable row level security', t.name);
        end if;
        if t.is_table and not t.forced then
            execute format('alter table %s force row level security', t.name);
        end if;
    end loop;
end
$$;

revoke all on schema almagest, engine, api from public, anon, authenticated, service_role;
grant usage on schema api to service_role;

-- What the reader's functions and policies call.
grant execute on function
engine.current_caller(),
engine.visible(engine.caller, uuid, uuid, uuid, uuid, uuid[]), engine.readable(engine.caller, almagest.items),
engine.hub_visible(engine.caller, uuid, uuid), engine.hub_rank(text),
engine.snippet(text, text[]), engine.marked_words(text, text[]), engine.best_words(int[], int[], int[], int),
engine.mark_pattern(text[], boolean), engine.folded_pieces(text), engine.folded_form(text), engine.cjk_signs(),
engine.term_words(text, text[]), engine.term_signs(text, text[]), engine.term_number(text, text[]),
engine.stands_whole(text, int, text), engine.fold(text), engine.identifiers(text), engine.identifier_forms(text),
engine.without_cjk(text)
to almagest_reader;

-- The dashboard is read by the project's owner, in Supabase's own.
revoke all on schema dashboard from public, anon, authenticated, service_role;
revoke all on all tables in schema dashboard from public, anon, authenticated, service_role;
