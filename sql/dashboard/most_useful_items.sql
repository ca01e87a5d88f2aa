-- Items that searches led to most, among the newest 100,000 activations: those opened or cited come first, then those
-- surfaced most. However many activations there are, no more are read.
create or replace view dashboard.most_useful_items with (security_invoker = true) as
select
    i.id as item_id,
    i.org_id,
    i.kind,
    i.type,
    i.state,
    a.opened,
    a.cited,
    a.surfaced,
    a.first_places,
    round(a.mean_rank, 1) as mean_rank,
    a.last_at,
    round(engine.item_strength(i)::numeric, 3) as strength
from (
    select
        n.item_id,
        count(*) filter (where n.use = 'opened') as opened,
        count(*) filter (where n.use = 'cited') as cited,
        count(*) filter (where n.use = 'surfaced') as surfaced,
        count(*) filter (where n.use = 'surfaced' and n.rank = 1) as first_places,
        avg(n.rank) as mean_rank,
        max(n.created_at) as last_at
    from (
        select
            l.item_id,
            l.use,
            l.rank,
            l.created_at
        from almagest.activations as l
        order by l.id desc
        limit 100000
    ) as n
    group by n.item_id
    order by
        count(*) filter (where n.use in ('opened', 'cited')) desc,
        count(*) desc,
        n.item_id
    limit 200
) as a
inner join almagest.items as i on a.item_id = i.id
inner join almagest.orgs as o on i.org_id = o.id
where not o.is_system and i.state <> 'erased'
order by a.opened + a.cited desc, a.surfaced desc, i.id asc
limit 100;

comment on view dashboard.most_useful_items is
'The 100 items that searches led to most, among the newest 100,000 activations: how often, in which places, how strong.';
