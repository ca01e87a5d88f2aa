-- Tells a function, when it starts, whether it fits this database. Called with caller null.
--   request  {}
--   returns  {version: number of the last migration, serves_since: the last migration that the oldest code knew which
--            still works here}
create or replace function api.get_schema(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
begin
    return jsonb_build_object(
        'version', (select max(m.version) from almagest.migrations as m), 'serves_since', engine.serves_since()
    );
end
$$;
