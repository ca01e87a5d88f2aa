-- Runs of scheduled work of the last 14 days, newest first: how late, how long, and at which step one broke off.
create or replace view dashboard.job_history with (security_invoker = true) as
select
    r.scheduled_for,
    r.job,
    r.state,
    r.attempts,
    round(extract(epoch from r.started_at - r.scheduled_for), 1) as late_seconds,
    round(extract(epoch from coalesce(r.finished_at, now()) - r.started_at), 1) as seconds,
    s.steps,
    s.done,
    s.broke_off_at,
    r.error,
    r.figures,
    r.started_at,
    r.state = 'running' and not engine.lease_holds(r.lease_expires_at) as lease_expired,
    r.id as run_id
from almagest.job_runs as r
cross join lateral (
    select
        count(*) as steps,
        count(*) filter (where t.state = 'succeeded') as done,
        (array_agg(t.name order by t.position) filter (where t.state = 'failed'))[1] as broke_off_at
    from almagest.job_steps as t
    where t.run_id = r.id
) as s
where r.started_at > now() - interval '14 days'
order by r.started_at desc, r.id desc;

comment on view dashboard.job_history is
'Runs of scheduled work of the last 14 days: how late, how long, how far, and why one broke off.';
