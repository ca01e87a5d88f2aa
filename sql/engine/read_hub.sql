-- The Hub as it leaves the database; read like all that does (see read.sql).
set role almagest_reader;

-- Entries that a caller is told of: the worst first, the newest of them first, with what the caller's user has marked.
--   entry            this one alone, whatever its state; null for all
--   state            open, closed or all
--   severity         this severity alone; null for all
--   dismissed        whether those that the user has dismissed are among them
--   after_rank, after_entry  those behind this entry as it was ranked then; null from the beginning
create or replace function engine.read_hub(
    c engine.caller, entry uuid, state text, severity text, dismissed boolean, after_rank int, after_entry uuid,
    page int
)
returns jsonb language sql stable security definer set search_path = '' as $$
    select coalesce(jsonb_agg(jsonb_build_object(
        'id', e.id, 'source', e.source, 'key', e.key, 'severity', e.severity, 'title', e.title, 'found', e.found,
        'tried', e.tried, 'to_do', e.to_do, 'figures', e.figures, 'tries', e.tries,
        'opened_at', engine.utc(e.opened_at), 'updated_at', engine.utc(e.updated_at),
        'closed_at', engine.utc(e.closed_at), 'read_at', engine.utc(e.read_at),
        'dismissed_at', engine.utc(e.dismissed_at)
    ) order by engine.hub_rank(e.severity) desc, e.opened_at desc, e.id desc), '[]')
    from (
        select f.*, m.read_at, m.dismissed_at
        from almagest.hub_feed as f
        left join almagest.hub_marks as m on m.entry_id = f.id and m.user_id = (c).user_id
        where (f.org_id = (c).org_id or f.org_id is null) and engine.hub_visible(c, f.org_id, f.user_id)
            and (read_hub.entry is null or f.id = read_hub.entry)
            and (read_hub.state = 'all' or (f.closed_at is null) = (read_hub.state = 'open'))
            and (read_hub.severity is null or f.severity = read_hub.severity)
            and (read_hub.dismissed or m.dismissed_at is null)
            and (
                read_hub.after_entry is null
                or (engine.hub_rank(f.severity), f.opened_at, f.id) < (
                    read_hub.after_rank,
                    (select l.opened_at from almagest.hub_feed as l where l.id = read_hub.after_entry),
                    read_hub.after_entry
                )
            )
        order by engine.hub_rank(f.severity) desc, f.opened_at desc, f.id desc
        limit read_hub.page
    ) as e
$$;

-- One entry; null where there is none that the caller is told of.
create or replace function engine.read_hub_entry(c engine.caller, entry uuid)
returns jsonb language sql stable security definer set search_path = '' as $$
    select engine.read_hub(c, entry, 'all', null, true, null, null, 1) -> 0
$$;

reset role;
