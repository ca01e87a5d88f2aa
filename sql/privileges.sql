-- Who may call what; applied after everything else. Nothing is for the public: the API is for service_role alone, the
-- engine for its owner, and the reader's functions for the owner as well.
do $$
declare
    f record;
begin
    for f in
        select p.oid::regprocedure as name, n.nspname as schema, pg_get_userbyid(p.proowner) as owner
        from pg_catalog.pg_proc as p
        join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
        where n.nspname in ('engine', 'api')
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

grant usage on schema api to service_role;

-- What the reader's functions and policies call.
grant execute on function
engine.current_caller(),
engine.visible(engine.caller, uuid, uuid, uuid, uuid, uuid[]), engine.readable(engine.caller, almagest.items),
engine.hub_visible(engine.caller, uuid, uuid), engine.hub_rank(text),
engine.snippet(text, text[]), engine.marked_words(text, text[]), engine.best_words(int[], int[], int[], int),
engine.mark_pattern(text[], boolean), engine.folded_pieces(text), engine.folded_form(text), engine.cjk_signs(),
engine.term_words(text, text[]), engine.term_bigrams(text, text[]), engine.term_number(text, text[]),
engine.stands_whole(text, int, text), engine.fold(text), engine.identifiers(text), engine.identifier_forms(text),
engine.without_cjk(text)
to almagest_reader;

-- The dashboard is read by the project's owner, in Supabase's own.
revoke all on schema dashboard from public, anon, authenticated, service_role;
revoke all on all tables in schema dashboard from public, anon, authenticated, service_role;
