-- The schemas, the role that reads for callers, and the type that carries a caller through the engine.

create schema almagest;
create schema engine;
create schema api;

comment on schema almagest is 'Tables. Nothing outside the owner and almagest_reader may touch them.';
comment on schema engine is 'Private functions: the engine behind the API.';
comment on schema api is 'The RPC surface: api.<name>(caller jsonb, request jsonb) returns jsonb. The only exposed schema.';

-- The second privacy layer: a role that row level security binds. The owner may become it, but does not inherit it,
-- so that a query of the owner is never read by accident with the reader's grants.
do $$
begin
    -- Row level security is forced on all tables: an owner that it bound would find them empty.
    if not (select rolsuper or rolbypassrls from pg_catalog.pg_roles where rolname = current_user) then
        raise exception 'role % may not bypass row level security', current_user
            using hint = 'migrate as a role with BYPASSRLS (Supabase: postgres)';
    end if;
    if not exists (select from pg_catalog.pg_roles where rolname = 'almagest_reader') then
        create role almagest_reader nologin nobypassrls;
    end if;
    if current_setting('server_version_num')::int >= 160000 then
        execute format('grant almagest_reader to %I with set true, inherit false', current_user);
    else
        execute format('grant almagest_reader to %I', current_user);
    end if;
end
$$;

-- Only so that the reader can own the functions that read for callers.
grant usage, create on schema engine to almagest_reader;
grant usage on schema almagest to almagest_reader;

create type engine.caller as (
    org_id uuid,
    user_id uuid,       -- null: no person behind the credential, so no private items
    agent_id uuid,      -- null: not an agent
    role text,
    key_id uuid,
    manages boolean,    -- owner or admin acting as a person: sees all clients and agent-scoped items
    client_ids uuid[],  -- clients whose items the caller may see
    deal_ids uuid[]     -- deals whose items the caller may see
);
comment on type engine.caller is 'Who asks, with scopes resolved; made by engine.resolve_caller.';
