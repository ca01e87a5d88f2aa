-- What the index job has still to do, by org, the longest waiting first. Reads the queue's own index, so that it costs
-- what waits and not what there is.
--   waiting         have no vectors yet, or not all; found by their words where they have chunks
--   oldest_seconds  how long the first of them has waited, as the metric IndexBacklogSeconds counts it (engine.backlog)
create or replace view dashboard.index_backlog with (security_invoker = true) as
select
    i.org_id,
    count(*) filter (where i.index_status in ('pending', 'text_ready')) as waiting,
    count(*) filter (where i.index_status = 'indexing') as indexing,
    count(*) filter (
        where i.index_status = 'indexing' and not engine.lease_holds(i.lease_expires_at)
    ) as leases_expired,
    count(*) filter (where i.index_status = 'failed') as failed,
    max(i.index_attempts) as most_attempts,
    round(extract(epoch from now() - min(engine.waits_since(i)))) as oldest_seconds
from almagest.items as i
where i.index_status <> 'search_ready'
group by i.org_id
order by oldest_seconds desc, waiting desc;

comment on view dashboard.index_backlog is
'What the index job has still to do, by org: waiting, at work, failed, and for how long the first has waited.';
