-- The index job's side in the database: leases with an expiry, so that a dead worker's items come back by themselves.

-- worker   who leases; any unique name
-- batch    how many items at the most
-- seconds  until the lease ends, if it is not renewed
-- Returns items whose vectors are missing, the longest waiting first; two workers never get the same one. One whose
-- worker dies comes back behind those that waited meanwhile, so that it cannot keep them from their turn.
create or replace function engine.lease_items(worker text, batch int, seconds int)
returns table (item_id uuid, org_id uuid, version int, title text, content text)
language sql as $$
    -- materialised, or the planner might run it more than once and take more than the batch
    with taken as materialized (
        select q.id
        from almagest.items as q
        where q.index_status <> 'search_ready'
            and q.index_after <= now()
            and (q.index_status <> 'indexing' or q.lease_expires_at < now())
        order by q.index_after, q.id
        limit batch
        for no key update skip locked
    )
    update almagest.items as i
    set index_status = 'indexing', lease_owner = worker, lease_expires_at = now() + make_interval(secs => seconds),
        index_after = now() + make_interval(secs => seconds), index_attempts = i.index_attempts + 1
    from taken
    where i.id = taken.id
    returning i.id, i.org_id, i.version, i.title, coalesce(i.plain_text, i.content)
$$;

-- Holds a lease for longer; false where it was lost.
create or replace function engine.renew_lease(worker text, item uuid, seconds int)
returns boolean language sql as $$
    with renewed as (
        update almagest.items as i set lease_expires_at = now() + make_interval(secs => seconds)
        where i.id = item and i.lease_owner = worker and i.index_status = 'indexing'
        returning 1
    )
    select exists (select from renewed)
$$;

-- Takes a worker's chunks ([{position, start, end, text, embedding}]) for the version that it leased. Returns the new
-- index status, or 'stale' where the lease was lost or the item has changed since: then nothing is taken.
-- Where vectors are still missing, the item is not handed out again for a minute.
create or replace function engine.index_item(worker text, item uuid, version int, chunks jsonb, model text)
returns text language plpgsql as $$
declare
    i almagest.items;
    status text;
begin
    perform engine.register_model(model);
    select * into i from almagest.items as it
    where it.id = item and it.lease_owner = worker and it.version = index_item.version and it.index_status = 'indexing'
    for no key update;
    if i.id is null then
        return 'stale';
    end if;
    status := engine.replace_chunks(i, chunks, model);
    update almagest.items as it
    set index_status = status, index_error = null, index_attempts = 0, index_after = now() + interval '1 minute',
        lease_owner = null, lease_expires_at = null
    where it.id = i.id;
    return status;
end
$$;

-- Gives an item back with what went wrong. It stays searchable by its words and is tried again, later each time: after
-- 1, 2, 4 … minutes, an hour at the most; from the fifth failure on it shows as failed.
create or replace function engine.fail_item(worker text, item uuid, version int, error text)
returns void language sql as $$
    update almagest.items as i
    set index_status = case
            when i.index_attempts >= 5 or not exists (select from almagest.chunks as k where k.item_id = i.id and k.version = i.version)
                then 'failed'
            else 'text_ready'
        end,
        index_error = left(error, 500),
        index_after = now() + make_interval(mins => least(60, power(2, least(i.index_attempts - 1, 6))::int)),
        lease_owner = null, lease_expires_at = null
    where i.id = item and i.lease_owner = worker and i.version = fail_item.version
$$;
