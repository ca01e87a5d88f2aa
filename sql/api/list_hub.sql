-- What the caller is told in the Hub: of the installation (owners and admins), of the org, and of the caller's user;
-- the worst first, and the newest of them first.
--   request  {state: open (default), closed or all, severity: critical, warning or info; all where it is left out,
--            include_dismissed: also what the caller's user has dismissed, cursor, limit: 1..100}
--   returns  {entries: [{id, source, key, severity, title, found, tried: [], to_do, figures, tries, opened_at,
--            updated_at, closed_at, read_at, dismissed_at}], next_cursor: null on the last page}; a caller without a
--            user has read and dismissed nothing
--   errors   422 invalid_cursor
create or replace function api.list_hub(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    c engine.caller := engine.enter(caller);
    after record := engine.parse_cursor(request ->> 'cursor');
    page int := greatest(1, least(100, coalesce((request ->> 'limit')::int, 100)));
    entries jsonb;
begin
    if request ->> 'cursor' is not null and (after.trace is null or engine.read_hub_entry(c, after.trace) is null) then
        perform engine.field_problem(
            'invalid_cursor', 'cursor', 'must be the next_cursor of a page of yours that has not expired',
            'The cursor is none that you were given, or has expired.'
        );
    end if;
    entries := engine.read_hub(
        c, null, coalesce(request ->> 'state', 'open'), request ->> 'severity',
        coalesce((request ->> 'include_dismissed')::boolean, false), after.passed, after.trace, page + 1
    );
    return jsonb_build_object(
        'entries', case when jsonb_array_length(entries) > page then entries - page else entries end,
        'next_cursor', case when jsonb_array_length(entries) > page then engine.page_cursor(
            (entries -> (page - 1) ->> 'id')::uuid, engine.hub_rank(entries -> (page - 1) ->> 'severity')
        ) end
    );
end
$$;
