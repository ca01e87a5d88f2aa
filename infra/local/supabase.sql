-- What a new Supabase project has before anybody's migrations: roles, the schema of extensions, default privileges.
-- Run once by the superuser in a new cluster; the passwords come in the settings local.postgres_password and
-- local.authenticator_password of the session.

create role anon nologin noinherit;
create role authenticated nologin noinherit;
create role service_role nologin noinherit bypassrls;
create role authenticator login noinherit;
create role postgres login nosuperuser createdb createrole replication bypassrls;

grant anon, authenticated, service_role to authenticator;
grant anon, authenticated, service_role to postgres with admin option;
grant authenticator to postgres;
grant pg_monitor, pg_signal_backend to postgres;

do $$
begin
  execute format('alter role postgres password %L', current_setting('local.postgres_password'));
  execute format('alter role authenticator password %L', current_setting('local.authenticator_password'));
end
$$;

alter role authenticator set statement_timeout = '8s';
alter role authenticator set lock_timeout = '8s';
alter role authenticated set statement_timeout = '8s';
alter role anon set statement_timeout = '3s';
alter role postgres set search_path = "$user", public, extensions;
alter role supabase_admin set search_path = "$user", public, extensions;

alter database postgres owner to postgres;
grant create on database postgres to postgres;

create schema extensions authorization postgres;
grant usage on schema extensions to anon, authenticated, service_role;
grant usage on schema public to anon, authenticated, service_role;
create extension vector with schema extensions;

-- Whatever postgres makes in public is open to the three, as it is in a project; private schemas must not rely on luck.
alter default privileges for role postgres in schema public grant all on tables to anon, authenticated, service_role;
alter default privileges for role postgres in schema public grant all on sequences to anon, authenticated, service_role;
alter default privileges for role postgres in schema public grant all on functions to anon, authenticated, service_role;
