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
            -- a lease without an end is nobody's
            and (q.index_status <> 'indexing' or coalesce(q.lease_expires_at, '-infinity') < now())
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

-- Takes a worker's chunks ([{position, start, end, text, heading_path, embedding}]) for the version that it leased.
-- Returns the new index status, or 'stale' where the lease was lost or the item has changed since: then nothing is
-- taken. Where vectors are still missing, the item is not handed out again for a minute.
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

-- Makes rows of almagest.lexical again whose terms are of another version of the tokeniser; until then they are found
-- by their old ones.
-- before   chunks with a lower number alone, or null for all: where the batch before this one ended
-- batch    how many at the most; about a millisecond each
-- Returns how many were made, those of the newest chunks first, and where the next batch begins; next is null at the
-- end. Rows that somebody else has locked are left to the next run, and it waits for nothing: two of these at once
-- share the work, and what one that is killed had begun is as it was.
-- A run that finds nothing to do notes that in a comment on the version's own function, so that the ones after it do
-- not read a million rows to find the same; a new version makes the note untrue. It is the run after the last batch
-- that notes it, minutes later: a write that began under the old version has ended by then.
create or replace function engine.retokenise(before bigint, batch int, out made int, out next bigint)
language plpgsql
-- the primary key from its end, however few rows are thought to be left: a sort would read the whole table a batch
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
    note constant text := 'All of almagest.lexical has version ' || engine.tokeniser_version();
begin
    made := 0;
    if obj_description('engine.tokeniser_version()'::regprocedure, 'pg_proc') = note then
        return;
    end if;
    with stale as materialized (
        select l.chunk_id from almagest.lexical as l
        where l.chunk_id < coalesce(before, 9223372036854775807) and l.tokeniser <> engine.tokeniser_version()
        order by l.chunk_id desc
        limit batch
        for no key update skip locked
    ),
    remade as (
        update almagest.lexical as l
        set tokeniser = engine.tokeniser_version(), length = w.length, terms = w.terms, says_when = w.says_when,
            only_asks = w.only_asks, text_hash = w.text_hash
        from stale as s
        join almagest.chunks as k on k.id = s.chunk_id
        join almagest.items as i on i.id = k.item_id
        -- what an edit has replaced is found by what its own version said
        left join almagest.item_versions as v on v.item_id = k.item_id and v.version = k.version and k.version < i.version
        cross join lateral engine.words_of(
            case when v.item_id is null then i.title else v.title end, coalesce(v.tags, engine.tags_of(i.id)),
            k.heading_path, k.text
        ) as w
        where l.chunk_id = s.chunk_id
        returning l.chunk_id
    )
    select count(*), case when count(*) = batch then min(r.chunk_id) end into made, next from remade as r;

    if made = 0 and before is null
        and not exists (select from almagest.lexical as l where l.tokeniser <> engine.tokeniser_version())
    then
        execute format('comment on function engine.tokeniser_version() is %L', note);
        -- counted of other terms: the job counts anew, and until then the searches do
        delete from almagest.partition_statistics;
    end if;
end
$$;
