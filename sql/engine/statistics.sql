-- Statistics of large orgs, which searches use instead of counting; made by a job, of what is active. They are as old
-- as the last run: an org is counted again when its size has changed by a twentieth.

-- In how many of some chunks a term has to stand to be frequent among them: in a hundredth, or in so many as are always
-- enough, and not in one alone.
create or replace function engine.frequent(documents float8, enough float8)
returns float8 language sql immutable parallel safe as $$
    select least(enough, greatest(2, documents / 100))
$$;

-- org_size  orgs with more chunks have statistics
-- frequent  how many chunks of a scope are always enough for a term to be frequent in it
-- Returns how many orgs were counted. Reads the table once, and the rows of a counted org twice.
create or replace function engine.refresh_statistics(org_size int default 5000, frequent int default 300)
returns int language plpgsql as $$
declare
    sizes jsonb := (
        select coalesce(jsonb_object_agg(counted.org_id, counted.documents), '{}')
        from (
            select l.org_id, count(*) as documents from almagest.lexical as l
            where l.state = 'active'
            group by l.org_id
            having count(*) > org_size
        ) as counted
    );
    org text;
    known bigint;
    counted int := 0;
begin
    -- what has become small is counted by the searches themselves again
    delete from almagest.partition_statistics as s where not sizes ? s.org_id::text;
    delete from almagest.term_statistics as t where not sizes ? t.org_id::text;
    for org in select jsonb_object_keys(sizes) order by 1 loop
        known := (select sum(s.documents) from almagest.partition_statistics as s where s.org_id = org::uuid);
        if known is null or abs(known - (sizes ->> org)::bigint) * 20 >= known then
            perform engine.count_org(org::uuid, frequent);
            counted := counted + 1;
        end if;
    end loop;
    return counted;
end
$$;

-- Counts the scopes of one org, and the terms that are frequent in each: whether one is kept for a scope depends on
-- what stands in that alone, or those who see it could tell by their scores what stands in others.
create or replace function engine.count_org(org uuid, frequent int)
returns void language plpgsql as $$
begin
    delete from almagest.partition_statistics as s where s.org_id = org;
    delete from almagest.term_statistics as t where t.org_id = org;
    insert into almagest.partition_statistics (
        org_id, user_id, client_id, deal_id, agent_ids, documents, total_length
    )
    select l.org_id, l.user_id, l.client_id, l.deal_id, l.agent_ids, count(*), sum(l.length)
    from almagest.lexical as l
    where l.org_id = org and l.state = 'active'
    group by l.org_id, l.user_id, l.client_id, l.deal_id, l.agent_ids;

    insert into almagest.term_statistics (org_id, user_id, client_id, deal_id, agent_ids, term, documents)
    select s.org_id, s.user_id, s.client_id, s.deal_id, s.agent_ids, w.word, w.ndoc
    from almagest.partition_statistics as s
    cross join lateral ts_stat(format(
        'select terms from almagest.lexical where org_id = %L and user_id is not distinct from %L::uuid'
        ' and client_id is not distinct from %L::uuid and deal_id is not distinct from %L::uuid'
        ' and agent_ids is not distinct from %L::uuid[] and state = ''active''',
        s.org_id, s.user_id, s.client_id, s.deal_id, s.agent_ids
    )) as w
    where s.org_id = org and w.ndoc >= engine.frequent(s.documents, frequent);
end
$$;
