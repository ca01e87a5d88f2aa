-- Statistics of large partitions (org and user scope), which searches use instead of counting; made by a job, of what
-- is active. They are as old as the last run: a partition is counted again when its size has changed by a twentieth.

-- partition_size  partitions with more chunks have statistics
-- frequent        terms that stand in at least so many chunks have their number kept
-- Returns how many partitions were counted. Reads a counted partition twice, about 2 s for 100,000 chunks.
create or replace function engine.refresh_statistics(partition_size int default 20000, frequent int default 1000)
returns int language plpgsql as $$
declare
    p record;
    counted int := 0;
begin
    -- what has become small is counted by the searches themselves again
    delete from almagest.partition_statistics as s
    where partition_size >= (
        select count(*) from (
            select from almagest.lexical as l
            where l.org_id = s.org_id and l.user_id is not distinct from s.user_id and l.state = 'active'
            limit partition_size + 1
        ) as rows
    );
    delete from almagest.term_statistics as t
    where not exists (
        select from almagest.partition_statistics as s
        where s.org_id = t.org_id and s.user_id is not distinct from t.user_id
    );
    for p in
        select sizes.*
        from (
            select l.org_id, l.user_id, count(*) as documents, sum(l.length) as total_length
            from almagest.lexical as l
            where l.state = 'active'
            group by l.org_id, l.user_id
            having count(*) > partition_size
        ) as sizes
        where not exists (
            select from almagest.partition_statistics as s
            where s.org_id = sizes.org_id and s.user_id is not distinct from sizes.user_id
                and abs(s.documents - sizes.documents) * 20 < s.documents
        )
        order by sizes.org_id, sizes.user_id
    loop
        insert into almagest.partition_statistics (org_id, user_id, documents, total_length)
        values (p.org_id, p.user_id, p.documents, p.total_length)
        on conflict (org_id, user_id) do update set
            documents = excluded.documents, total_length = excluded.total_length, counted_at = now();
        delete from almagest.term_statistics as t
        where t.org_id = p.org_id and t.user_id is not distinct from p.user_id;
        insert into almagest.term_statistics (org_id, user_id, term, documents)
        select p.org_id, p.user_id, w.word, w.ndoc
        from ts_stat(format(
            'select terms from almagest.lexical where org_id = %L and user_id is not distinct from %L::uuid'
            ' and state = ''active''', p.org_id, p.user_id
        )) as w
        where w.ndoc >= frequent;
        counted := counted + 1;
    end loop;
    return counted;
end
$$;
