-- Items that searches have led to least: of each org those that have stood unchanged for longest, 30 days or more, and
-- about 5,000 of all orgs together, so that it costs the same however many there are. Those that were never opened or
-- cited come first, then those surfaced least; of equal ones the weakest. Traces end, and what they surfaced with them:
-- 0 means not within the time that they are kept.
create or replace view dashboard.least_useful_items with (security_invoker = true) as
select
    c.id as item_id,
    c.org_id,
    c.kind,
    c.type,
    a.opened,
    a.cited,
    a.surfaced,
    a.last_at,
    c.updated_at,
    round(engine.strength(s, t.strength_floor, c.evergreen, now())::numeric, 3) as strength
from (
    select count(*) as orgs from almagest.orgs as e
    where not e.is_system
) as n
cross join almagest.orgs as o
cross join lateral (
    select
        i.id,
        i.org_id,
        i.kind,
        i.type,
        i.evergreen,
        i.updated_at
    from almagest.items as i
    where i.org_id = o.id and i.updated_at < now() - interval '30 days' and i.state = 'active'
    order by i.updated_at
    limit greatest(5, 5000 / n.orgs)
) as c
cross join lateral ( -- noqa: ST05
    with l as (
        select
            v.use,
            v.created_at
        from almagest.activations as v
        where v.item_id = c.id
        order by v.created_at desc
        limit 100
    )

    select
        count(*) filter (where l.use = 'opened') as opened,
        count(*) filter (where l.use = 'cited') as cited,
        count(*) filter (where l.use = 'surfaced') as surfaced,
        max(l.created_at) as last_at
    from l
) as a
left join almagest.strength_signals as s on c.id = s.item_id
left join lateral (
    select y.strength_floor from almagest.item_types as y
    where y.name = c.type and (y.org_id = c.org_id or y.org_id is null)
    order by y.org_id nulls last
    limit 1
) as t on true
where not o.is_system
order by a.opened + a.cited, a.surfaced, engine.strength(s, t.strength_floor, c.evergreen, now()), c.updated_at
limit 100;

comment on view dashboard.least_useful_items is
'The 100 items that searches have led to least, among those that have stood unchanged for longest in each org.';
