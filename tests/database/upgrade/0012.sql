-- Rows as they were once migration 0012 had landed: a failed check, what was tried for it, and what people were told.
insert into almagest.job_runs (job, scheduled_for, state, finished_at, figures) values
('health', '2026-11-30 00:00+00', 'succeeded', '2026-11-30 00:01+00', '{"failed": 1}'),
('remediation', '2026-11-30 00:15+00', 'failed', '2026-11-30 00:16+00', '{}');
insert into almagest.job_steps (run_id, name, position, state, figures)
select r.id, 'staleness', 1, 'succeeded', '{"measured": 3}' from almagest.job_runs as r where r.job = 'health';
insert into almagest.health_runs (run_id, status, remediated_by)
select h.id, 'failed', r.id from almagest.job_runs as h, almagest.job_runs as r where h.job = 'health' and r.job = 'remediation';
insert into almagest.health_checks (run_id, name, status, measured, threshold, unit, sentence, duration_ms)
select r.id, 'staleness', 'failed', 3, 0, 'items', 'Three items wait.', 12 from almagest.job_runs as r where r.job = 'health';
insert into almagest.remediations (run_id, health_run_id, check_name, action, attempt, state)
select r.run_id, r.health, 'staleness', 'index', 1, 'unchanged'
from (
    select max(id) filter (where job = 'remediation') as run_id, max(id) filter (where job = 'health') as health
    from almagest.job_runs
) as r;
insert into almagest.hub_feed (source, key, severity, title, found, to_do) values
('health', 'health.staleness', 'critical', 'Items wait', 'Three items wait.', 'Look at the index function.');
insert into almagest.hub_marks (entry_id, user_id, read_at)
select f.id, '0b000000-0000-0000-0000-000000000000', now() from almagest.hub_feed as f;
