-- What people are told and have not seen the end of, the worst first. Only entries of the installation say what was
-- found, since they hold figures alone; those of an org or a person are theirs to read, by `almagest hub`.
create or replace view dashboard.open_hub_entries with (security_invoker = true) as
select
    f.severity,
    f.key,
    case when f.org_id is null then 'installation' when f.user_id is null then 'org' else 'person' end as told_to,
    f.org_id,
    case when f.org_id is null then f.found end as found,
    case when f.org_id is null then f.to_do end as to_do,
    f.tries,
    f.opened_at,
    f.updated_at,
    date_trunc('second', now() - f.opened_at) as age,
    (select count(m.read_at) from almagest.hub_marks as m where m.entry_id = f.id) as read_by,
    (select count(m.dismissed_at) from almagest.hub_marks as m where m.entry_id = f.id) as dismissed_by,
    f.source,
    f.id as entry_id
from almagest.hub_feed as f
where f.closed_at is null
order by engine.hub_rank(f.severity) desc, f.opened_at desc, f.id desc;

comment on view dashboard.open_hub_entries is
'What people are told in the Hub and is not settled, the worst first; what is told to an org or a person without its words.';
