-- What the index job has still to do, by org, the longest waiting first. Reads the queue's own index, so that it costs
-- what waits and not what there is.
--   waiting          have no vectors yet, or not all; found by their words where they have chunks
--   overdue_seconds  how long the first of them could have been taken up; a few minutes are the sweep's own rhythm
create or replace view dashboard.index_backlog with (security_invoker = true) as
select
    i.org_id,
    count(*) filter (where i.index_status in ('pending', 'text_ready')) as waiting,
    count(*) filter (where i.index_status = 'indexing') as indexing,
    count(*) filter (where i.index_status = 'indexing' and i.lease_expires_at < now()) as leases_expired,
    count(*) filter (where i.index_status = 'failed') as failed,
    max(i.index_attempts) as most_attempts,
    min(i.updated_at) as oldest_version_of,
    round(greatest(0, extract(epoch from now() - min(i.index_after)))) as overdue_seconds
from almagest.items as i
where i.index_status <> 'search_ready'
group by i.org_id
order by overdue_seconds desc, waiting desc;

comment on view dashboard.index_backlog is
'What the index job has still to do, by org: waiting, at work, failed, and for how long the first could have been taken up.';
