-- Searches of the last 14 days that took the database 250 ms or more, the slowest first, with the time of each stage;
-- docs/search.md tells the stages. An index has these alone, so that the others are not read.
create or replace view dashboard.slow_retrievals with (security_invoker = true) as
select
    r.took_ms,
    r.created_at,
    r.org_id,
    r.purpose,
    r.profile,
    r.mode,
    r.candidates,
    (r.trace -> 'stages_ms' ->> 'filter')::real as filter_ms,
    (r.trace -> 'stages_ms' ->> 'terms')::real as terms_ms,
    (r.trace -> 'stages_ms' ->> 'keyword')::real as keyword_ms,
    (r.trace -> 'stages_ms' ->> 'vector')::real as vector_ms,
    (r.trace -> 'stages_ms' ->> 'substring')::real as substring_ms,
    (r.trace -> 'stages_ms' ->> 'rank')::real as rank_ms,
    (r.trace -> 'stages_ms' ->> 'diversify')::real as diversify_ms,
    (r.trace -> 'stages_ms' ->> 'read')::real as read_ms,
    jsonb_array_length(r.trace -> 'terms') as terms,
    r.trace ->> 'exact' as exact,
    r.id as trace_id,
    r.request_id
from almagest.retrievals as r
where
    r.created_at > now() - interval '14 days'
    -- not the health checks' own
    and r.org_id is distinct from (select o.id from almagest.orgs as o where o.is_system)
    and r.took_ms >= 250
order by r.took_ms desc
limit 500;

comment on view dashboard.slow_retrievals is
'Searches of the last 14 days that took the database 250 ms or more, the slowest 500, with the time of each stage.';
