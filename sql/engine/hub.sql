-- The Hub: where people are told what the system cannot settle by itself. An entry is of the installation (org null,
-- for owners and admins of every org), of an org, or of a person in it; each scope has one open entry a key.

-- A severity as a number, the worst the highest.
create or replace function engine.hub_rank(severity text)
returns int language sql immutable parallel safe as $$
    select case severity when 'critical' then 3 when 'warning' then 2 else 1 end
$$;

-- Whether a caller is told of the entries of a scope. A plain expression, like engine.visible.
create or replace function engine.hub_visible(c engine.caller, org_id uuid, user_id uuid)
returns boolean language sql immutable parallel safe as $$
    select case
        when org_id is null then user_id is null and (c).manages
        else org_id = (c).org_id and (user_id is null or user_id = (c).user_id)
    end
$$;

-- Tells people, or tells them anew: opens the entry of a key, or brings the open one up to date. It becomes worse where
-- its severity rises, or its figures name among `kinds` one that they did not: what anybody has read or dismissed of it
-- is then forgotten, so that they are told again.
--   org, person  whom it is for; person null: everybody in the org; both null: the installation
--   severity     info, warning or critical
--   finding      what was found, in sentences
--   tried        an array: what the system did about it
--   to_do        what a person can do
--   figures      ids and figures, never content; kinds: an array of names, of what kinds it is
--   tried_now    whether this is a try that counts; where it is not, an entry that says the same already stays as it is
-- Returns the entry's id. A lock keeps it to one entry a key, not the unique index, without which people are told, too.
create or replace function engine.open_hub_entry(
    org uuid, person uuid, source text, key text, severity text, title text, finding text, tried jsonb, to_do text,
    figures jsonb, tried_now boolean default true
)
returns uuid language plpgsql as $$
#variable_conflict use_column
declare
    before almagest.hub_feed;
    entry uuid;
begin
    perform pg_advisory_xact_lock(hashtextextended('almagest.hub_feed:' || open_hub_entry.key, 0));
    select f.* into before
    from almagest.hub_feed as f
    where f.key = open_hub_entry.key and f.org_id is not distinct from org and f.user_id is not distinct from person
        and f.closed_at is null
    order by f.opened_at
    limit 1
    for no key update;
    if not tried_now
        and (before.severity, before.title, before.found, before.to_do, before.figures - 'run')
        = (open_hub_entry.severity, open_hub_entry.title, finding, open_hub_entry.to_do, open_hub_entry.figures - 'run')
    then
        return before.id;
    end if;
    if before.id is null then
        insert into almagest.hub_feed as f (
            org_id, user_id, source, key, severity, title, found, tried, to_do, figures, tries
        ) values (
            org, person, source, key, severity, title, finding, coalesce(tried, '[]'), to_do, coalesce(figures, '{}'),
            tried_now::int
        )
        returning f.id into entry;
        return entry;
    end if;
    update almagest.hub_feed as f
    set source = open_hub_entry.source, severity = open_hub_entry.severity, title = open_hub_entry.title, found = finding,
        tried = coalesce(open_hub_entry.tried, '[]'), to_do = open_hub_entry.to_do,
        figures = coalesce(open_hub_entry.figures, '{}'), tries = f.tries + tried_now::int, updated_at = now()
    where f.id = before.id;
    if engine.hub_rank(open_hub_entry.severity) > engine.hub_rank(before.severity)
        or not coalesce(open_hub_entry.figures -> 'kinds', '[]') <@ coalesce(before.figures -> 'kinds', '[]')
    then
        delete from almagest.hub_marks as m where m.entry_id = before.id;
    end if;
    return before.id;
end
$$;

-- Closes the open entry of a key, if there is one, and says whether there was.
create or replace function engine.close_hub_entry(org uuid, person uuid, key text)
returns boolean language plpgsql as $$
begin
    update almagest.hub_feed as f set closed_at = now(), updated_at = now()
    where f.key = close_hub_entry.key and f.org_id is not distinct from org and f.user_id is not distinct from person
        and f.closed_at is null;
    return found;
end
$$;
