-- Which rows the keyword leg reads: those with a rare word, or with common ones that stand together; and what others
-- can score at most.

-- The lowest sum of idf that a row has to reach to be read, so that about so many rows are: told by its three rarest
-- terms, of which the rarest is one of the first.
--   idfs, documents  of the terms, rarest first; its work grows with the cube of how many there are
--   size             chunks of the partition
--   leads            how many terms may be the rarest of a row
--   rows             about how many rows at the most; more where fewer than 1,000 would be left
--   least_idf        the sum; the next below it is the most that the others can have
--   expected         how many there will be
-- A set of terms lets rows through from its sum on, down to the sum without its most frequent term, where the rest lets
-- them through already. Each further term is taken to stand with the others half as often again as by chance.
create or replace function engine.idf_to_reach(
    idfs float8[], documents float8[], size float8, leads int, rows float8, out least_idf float8, out next_idf float8,
    out expected float8
)
language sql immutable parallel safe as $$
    with terms as (
        select t.place, t.idf, t.documents, 1.5 * t.documents / greatest(size, 1) as share
        from unnest(idfs, documents) with ordinality as t (idf, documents, place)
    ),
    sets as (
        select a.idf as sum_idf, 0::float8 as without_last, a.documents
        from terms as a where a.place <= leads
        union all
        select a.idf + b.idf, a.idf, a.documents * least(1, b.share)
        from terms as a join terms as b on b.place > a.place
        where a.place <= leads
        union all
        select a.idf + b.idf + c.idf, a.idf + b.idf, a.documents * least(1, b.share) * least(1, c.share)
        from terms as a
        join terms as b on b.place > a.place
        join terms as c on c.place > b.place
        where a.place <= leads
    ),
    levels as (
        select l.idf, sum(sum(l.documents)) over (order by l.idf desc) as expected
        from (
            select s.sum_idf as idf, s.documents from sets as s
            union all
            select s.without_last, -s.documents from sets as s where s.without_last > 0
        ) as l
        group by l.idf
    )
    select l.idf - 1e-9, coalesce(l.next_idf, 0), l.expected -- two sums of the same may differ in their last bits
    from (
        select
            v.*, lag(v.expected, 1, 0) over (order by v.idf desc) as before,
            lead(v.idf) over (order by v.idf desc) as next_idf
        from levels as v
    ) as l
    where l.expected <= rows or l.before < 1000
    order by l.idf
    limit 1
$$;

-- Words of the index, rarest first, and their idf -> the text of a tsquery for rows that hold one or two whose idf adds
-- up to what is needed; null where no two of them do.
create or replace function engine.adding_up(words text[], idfs float8[], needed float8)
returns text language plpgsql immutable parallel safe as $$
declare
    enough int := 0;        -- words that do by themselves
begin
    while idfs[enough + 1] >= needed loop
        enough := enough + 1;
    end loop;
    return nullif(concat_ws(
        ' | ', nullif(array_to_string(words[:enough], ' | '), ''),
        engine.two_adding_up(words[enough + 1:], idfs[enough + 1:], needed)
    ), '');
end
$$;

-- The same for two of them. Each row that is passed over is compared with every word that the text names, so it shall
-- name few: one of this half and one of that, or two of either, which is n log n instead of the square.
create or replace function engine.two_adding_up(words text[], idfs float8[], needed float8)
returns text language plpgsql immutable parallel safe as $$
declare
    n int := cardinality(words);
    half int;
begin
    while n >= 2 and idfs[1] + idfs[n] < needed loop
        n := n - 1;         -- too frequent for any other
    end loop;
    if n < 2 then
        return null;
    end if;
    half := n / 2;
    return concat_ws(
        ' | ', engine.one_of_each_adding_up(words[:half], idfs[:half], words[half + 1:n], idfs[half + 1:n], needed),
        engine.two_adding_up(words[:half], idfs[:half], needed),
        engine.two_adding_up(words[half + 1:n], idfs[half + 1:n], needed)
    );
end
$$;

-- The same for one of some words and one of others.
create or replace function engine.one_of_each_adding_up(
    words text[], idfs float8[], others text[], other_idfs float8[], needed float8
)
returns text language plpgsql immutable parallel safe as $$
declare
    n constant int := cardinality(words);
    half constant int := n / 2;
    m int := cardinality(others);
begin
    while m > 0 and idfs[1] + other_idfs[m] < needed loop
        m := m - 1;         -- too frequent for any of the words
    end loop;
    if m = 0 then
        return null;
    end if;
    if idfs[n] + other_idfs[m] >= needed then
        return format('(%s) & (%s)', array_to_string(words, ' | '), array_to_string(others[:m], ' | '));
    end if;
    return concat_ws(
        ' | ', engine.one_of_each_adding_up(words[:half], idfs[:half], others[:m], other_idfs[:m], needed),
        engine.one_of_each_adding_up(words[half + 1:], idfs[half + 1:], others[:m], other_idfs[:m], needed)
    );
end
$$;

-- Which rows to read, as a query over almagest.lexical for execute … using c, states, within, queries, conditions.
-- Terms stay parameters, here and in engine.rank_columns: where a query is cut short, its text is in the server's log.
--   rows    about how many the condition may let through
--   again   whether this is the second reading, since the first did not fill the answer: then some rows of the next
--           word alone come too
--   bound   the highest BM25 score that a row beside the condition can have; null where every match is read, and
--           infinity where rows are cut off
-- A row is read where its terms are rare enough together: where the idf of its three rarest, among the 16 rarest of the
-- query, adds up to a threshold. So of common words only rows are read that hold several. The word index walks through
-- the rows of each term that may be the rarest of a row: together a tenth of what the caller may search at the most, or
-- 50,000, or as many as may be read, whichever is more.
create or replace function engine.rows_to_read(
    q engine.query_terms, org uuid, rows float8, again boolean, out query text, out conditions tsquery[],
    out bound float8
)
language plpgsql immutable parallel safe as $$
declare
    idfs constant float8[] := (q).idfs;
    words text[] := array(select engine.org_term(org, term) from unnest((q).terms) as term);
    n constant int := cardinality(words);
    chosen constant int := least(n, 16);
    leads int;              -- terms that may be the rarest of a row
    alone int := 0;         -- terms that do by themselves
    needed record;
    beside text;
    wanted text[] := '{}';
begin
    if rows >= (select sum(d) from unnest((q).documents) as d) then
        wanted := array[array_to_string(words, ' | ')];
        alone := n;
    else
        leads := greatest(1, (
            select count(*)
            from (
                select sum(d) over (order by place) as walked
                from unnest((q).documents[:chosen]) with ordinality as t (d, place)
            ) as w
            where w.walked <= greatest(50000, rows, (q).size / 10)
        ));
        needed := engine.idf_to_reach(idfs[:chosen], (q).documents[:chosen], (q).size, leads, rows);
        alone := (select count(*) from unnest(idfs[:leads]) as idf where idf >= needed.least_idf);
        if alone > 0 then
            wanted := array[array_to_string(words[:alone], ' | ')];
        end if;
        for i in alone + 1..leads loop
            beside := engine.adding_up(words[i + 1:chosen], idfs[i + 1:chosen], needed.least_idf - idfs[i]);
            exit when beside is null;
            wanted := wanted || format('%s & (%s)', words[i], beside);
        end loop;
        bound := case
            when needed.expected > 4 * rows then 'infinity'
            else engine.most_beside(idfs[alone + 1:], needed.next_idf, leads - alone, chosen - alone)
        end;
    end if;
    -- queries of their own, so that rows come from the word index alone
    query := format(
        '(select l.* from almagest.lexical as l where %s limit %s)%s',
        (
            select string_agg(format('almagest.org_terms(l.org_id, l.terms) @@ ($5)[%s]', number), ' or ')
            from generate_series(1, cardinality(wanted)) as number
        ),
        case when bound = 'infinity' then (2 * rows)::bigint::text else 'all' end,
        case when again and alone < n then format(
            ' union all (select l.* from almagest.lexical as l where almagest.org_terms(l.org_id, l.terms) @@ ($5)[%s]'
            ' limit %s)', cardinality(wanted) + 1, rows::bigint / 10
        ) end
    );
    conditions := (wanted || words[alone + 1:alone + 1])::tsquery[];
    bound := case when alone < n or bound = 'infinity' then bound end;
end
$$;

-- The highest BM25 score that a row can have beside those that engine.rows_to_read asks for.
--   idfs    of the terms that it may hold, rarest first
--   three   the most that its three rarest terms add up to
--   leads   how many of the terms are looked up as the rarest of a row; chosen: and how many as the others
-- Each term adds less than 2.2 of its idf (k1 = 1.2).
create or replace function engine.most_beside(idfs float8[], three float8, leads int, chosen int)
returns float8 language sql immutable parallel safe as $$
    select 2.2 * least(
        (select sum(idf) from unnest(idfs) as idf),
        greatest(
            -- the third adds a third of the three at the most, and after it only more frequent ones come
            three + coalesce((
                select sum(t.idf) from unnest(idfs) with ordinality as t (idf, place)
                where t.place > (
                    select min(u.place) from unnest(idfs) with ordinality as u (idf, place)
                    where u.place >= 3 and u.idf <= three / 3 + 1e-9
                )
            ), 0),
            (select sum(idf) from unnest(idfs[leads + 1:]) as idf),
            (select sum(idf) from unnest(idfs[:2] || idfs[chosen + 1:]) as idf where cardinality(idfs) > chosen)
        )
    )
$$;
