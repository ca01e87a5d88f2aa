-- What each check of health found the last time that it ran, whether that was in a run of health or, after something
-- was tried, in one of remediation; the worst first.
create or replace view dashboard.latest_health with (security_invoker = true) as
select
    c.name as check_name,
    c.status,
    c.measured,
    c.threshold,
    c.unit,
    c.sentence,
    c.checked_at,
    date_trunc('second', now() - c.checked_at) as age,
    r.job as checked_by,
    c.run_id,
    c.duration_ms
from (
    select distinct on (h.name) h.*
    from almagest.health_checks as h
    order by h.name asc, h.checked_at desc
) as c
inner join almagest.job_runs as r on c.run_id = r.id
order by array_position(array['failed', 'degraded', 'ok'], c.status), c.name;

comment on view dashboard.latest_health is
'What each check of health found the last time that it ran, the worst first.';
