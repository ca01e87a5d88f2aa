-- How large each table is, the largest first; a table in partitions is one row. Rows are the planner's estimate, of
-- when the table was last analysed, and so cost nothing.
create or replace view dashboard.sizes with (security_invoker = true) as
select
    t.relname::text as table_name,
    t.estimated_rows,
    t.table_bytes,
    t.index_bytes,
    t.table_bytes + t.index_bytes as total_bytes,
    pg_size_pretty(t.table_bytes + t.index_bytes) as total,
    t.partitions,
    t.dead_rows
from (
    select
        w.relname,
        sum(greatest(p.reltuples, 0))::bigint as estimated_rows,
        sum(pg_table_size(p.oid))::bigint as table_bytes,
        sum(pg_indexes_size(p.oid))::bigint as index_bytes,
        count(*) filter (where p.relispartition) as partitions,
        sum(pg_stat_get_dead_tuples(p.oid))::bigint as dead_rows
    from pg_catalog.pg_class as p
    inner join pg_catalog.pg_class as w
        on w.oid = case when p.relispartition then pg_partition_root(p.oid) else p.oid end
    where p.relnamespace = 'almagest'::regnamespace and p.relkind = 'r'
    group by w.relname
) as t
-- read, so that a grant on the view alone opens nothing here either
where exists (select from almagest.migrations)
order by total_bytes desc, t.relname asc;

comment on view dashboard.sizes is
'How large each table is, with its indexes, and about how many rows it has.';
