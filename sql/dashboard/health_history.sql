-- Runs of the health checks of the last 90 days, newest first: how many checks passed, which did not, and what the
-- remediation that followed did about them.
create or replace view dashboard.health_history with (security_invoker = true) as
select
    h.checked_at,
    h.run_id,
    h.status,
    c.ok,
    c.degraded,
    c.failed,
    c.not_passed,
    round((extract(epoch from r.finished_at - r.started_at))::numeric, 1) as seconds,
    h.remediated_by,
    t.tried,
    t.mended
from almagest.health_runs as h
inner join almagest.job_runs as r on h.run_id = r.id
cross join lateral (
    select
        count(*) filter (where k.status = 'ok') as ok,
        count(*) filter (where k.status = 'degraded') as degraded,
        count(*) filter (where k.status = 'failed') as failed,
        coalesce(array_agg(k.name order by k.name) filter (where k.status <> 'ok'), '{}') as not_passed
    from almagest.health_checks as k
    where k.run_id = h.run_id
) as c
cross join lateral (
    select
        count(*) as tried,
        count(*) filter (where m.state = 'mended') as mended
    from almagest.remediations as m
    where m.health_run_id = h.run_id
) as t
where h.checked_at > now() - interval '90 days'
order by h.checked_at desc;

comment on view dashboard.health_history is
'Runs of the health checks of the last 90 days: how many passed, which did not, and what remediation did about them.';
