-- Searches of the last 14 days that were not answered by both legs, newest first: which mode answered, and why. Nothing
-- of what was asked or found; the trace, which its asker can read, has the same id, and the logs have the request's.
-- A caller's rights on the tables are asked too (security_invoker), so that no grant on the view alone opens it.
create or replace view dashboard.degraded_retrievals with (security_invoker = true) as
select
    r.created_at,
    r.org_id,
    r.purpose,
    r.profile,
    r.mode,
    r.degraded_reason,
    r.candidates,
    r.id as trace_id,
    r.request_id,
    jsonb_array_length(r.trace -> 'results') as results
from almagest.retrievals as r
where
    r.created_at > now() - interval '14 days'
    -- not the health checks' own
    and r.org_id is distinct from (select o.id from almagest.orgs as o where o.is_system)
    and r.mode <> 'hybrid'
    and r.degraded_reason <> 'no_query' -- a session that asked nothing
order by r.created_at desc;

comment on view dashboard.degraded_retrievals is
'Searches of the last 14 days that fell back from hybrid: the mode that answered, and why.';
