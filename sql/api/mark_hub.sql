-- Marks an entry of the Hub as read or dismissed by the caller's user, or takes that back; a mark is the user's alone,
-- and the first of a kind counts. A dismissed entry comes back when it becomes worse.
--   request  {id, mark: read or dismissed, taken_back: false}
--   returns  the entry, as list_hub
--   errors   403 no_user for a caller without a user, 404 not_found
create or replace function api.mark_hub(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    c engine.caller := engine.enter(caller);
    entry uuid := (request ->> 'id')::uuid;
    mark text := request ->> 'mark';
    at timestamptz := case when not coalesce((request ->> 'taken_back')::boolean, false) then now() end;
begin
    if c.user_id is null then
        perform engine.problem(
            403, 'no_user', 'Entries of the Hub are marked by a person: this key belongs to an agent without a user.'
        );
    end if;
    if engine.read_hub_entry(c, entry) is null then
        perform engine.problem(404, 'not_found', 'There is no such entry.');
    end if;
    insert into almagest.hub_marks as m (entry_id, user_id, read_at, dismissed_at) values (
        entry, c.user_id, case when mark = 'read' then at end, case when mark = 'dismissed' then at end
    )
    on conflict (entry_id, user_id) do update set
        read_at = case when mark <> 'read' then m.read_at when at is not null then coalesce(m.read_at, at) end,
        dismissed_at = case
            when mark <> 'dismissed' then m.dismissed_at
            when at is not null then coalesce(m.dismissed_at, at)
        end;
    return engine.read_hub_entry(c, entry);
end
$$;
