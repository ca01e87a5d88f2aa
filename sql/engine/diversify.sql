-- Diversification: maximal marginal relevance (Carbonell and Goldstein 1998) over the best candidates, after strength,
-- so that the strongest cannot crowd out what lies beside them.

-- ranked  best first; those with a cut are passed over
-- lambda  1: by score alone; less: the more a candidate resembles what was picked, the less it counts
-- picks   how many come back
-- Candidates with the same text are one, whatever the lambda. Compares the best 2 x picks with each other, 100 at most.
create or replace function engine.diversify(ranked engine.candidate[], model smallint, lambda float8, picks int)
returns engine.candidate[] language plpgsql stable as $$
declare
    pool engine.candidate[];
    size int;
    cosines float8[];
    best float8[];          -- greatest similarity to what was picked
    free boolean[];
    picked int[] := '{}';
    next_pick int;
    next_value float8;
    value float8;
begin
    select array_agg(u.candidate order by u.place) into pool
    from (
        select distinct_texts.candidate, distinct_texts.place
        from (
            select
                t.r as candidate, t.place, row_number() over (partition by md5(k.text) order by t.place) as copy
            from (
                select (r.chunk_id, r.item_id, r.keyword, r.matched, r.vector, r.metadata, r.boosts, r.hybrid, r.relevance,
                    r.strength, r.final, r.cut)::engine.candidate as r, r.place, r.chunk_id
                from unnest(ranked) with ordinality as r (
                    chunk_id, item_id, keyword, matched, vector, metadata, boosts, hybrid, relevance, strength, final, cut, place
                )
                where r.cut is null
                order by r.place
                limit 4 * picks
            ) as t
            join almagest.chunks as k on k.id = t.chunk_id
        ) as distinct_texts
        where distinct_texts.copy = 1
    ) as u;
    size := least(coalesce(cardinality(pool), 0), greatest(2 * picks, 20), 100);
    if lambda >= 1 or size <= 1 or model is null then
        return pool[:picks];
    end if;

    select array_agg(coalesce(1 - (a.vector operator(@extschema:vector@.<=>) b.vector), 0) order by p.i, o.i) into cosines
    from generate_series(1, size) as p (i)
    cross join generate_series(1, size) as o (i)
    left join almagest.embeddings as a on a.chunk_id = pool[p.i].chunk_id and a.model_id = model
    left join almagest.embeddings as b on b.chunk_id = pool[o.i].chunk_id and b.model_id = model;
    best := array_fill(0::float8, array[size]);
    free := array_fill(true, array[size]);
    for pick in 1..least(picks, size) loop
        next_pick := null;
        for i in 1..size loop
            continue when not free[i];
            value := lambda * pool[i].final - (1 - lambda) * best[i];
            if next_pick is null or value > next_value then
                next_pick := i;
                next_value := value;
            end if;
        end loop;
        picked := picked || next_pick;
        free[next_pick] := false;
        for i in 1..size loop
            if free[i] then
                best[i] := greatest(best[i], cosines[(next_pick - 1) * size + i]);
            end if;
        end loop;
    end loop;
    return array(select pool[i] from unnest(picked) with ordinality as p (i, place) order by p.place)
        || pool[size + 1:greatest(picks, size)];
end
$$;
