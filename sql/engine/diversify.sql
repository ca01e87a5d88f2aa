-- Diversification: maximal marginal relevance (Carbonell and Goldstein 1998) over the best candidates, after strength,
-- so that the strongest cannot crowd out what lies beside them.

-- ranked  best first
-- picks   how many are chosen
-- lambda  1: by score alone; less: the more a candidate resembles what was picked, the less it counts
-- Returns all candidates with their places: what was picked, the others by score, those with a cut. Compares the best
-- 2 x picks with each other, 20 to 100. decisions says of each pick in turn its rank by score, and how similar it is to
-- what had been picked.
create or replace function engine.diversify(
    ranked engine.candidate[], model smallint, picks int, lambda float8,
    out candidates engine.candidate[], out decisions jsonb
)
language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
    chunk_ids bigint[];
    finals float8[];
    size int;
    cosines float8[];
    nearest float8[];       -- greatest similarity to what was picked
    free boolean[];
    picked int[] := '{}';   -- ranks
    similarities float8[] := '{}';
    next_pick int;
    next_value float8;
begin
    select array_agg(r.chunk_id order by r.rank), array_agg(r.final order by r.rank) into chunk_ids, finals
    from unnest(ranked) as r
    where r.cut is null and r.rank <= least(greatest(2 * picks, 20), 100);
    size := coalesce(cardinality(chunk_ids), 0);
    if lambda >= 1 or size <= 1 or model is null then
        candidates := ranked;
        return;
    end if;

    with vectors as materialized (
        select p.place, e.vector
        from unnest(chunk_ids) with ordinality as p (id, place)
        left join almagest.embeddings as e on e.chunk_id = p.id and e.model_id = model
    )
    select array_agg(coalesce(1 - (a.vector operator(@extschema:vector@.<=>) b.vector), 0) order by a.place, b.place)
    into cosines
    from vectors as a
    cross join vectors as b;
    nearest := array_fill(0::float8, array[size]);
    free := array_fill(true, array[size]);
    for pick in 1..least(picks, size) loop
        next_pick := null;
        for i in 1..size loop
            if free[i] and (next_pick is null or lambda * finals[i] - (1 - lambda) * nearest[i] > next_value) then
                next_pick := i;
                next_value := lambda * finals[i] - (1 - lambda) * nearest[i];
            end if;
        end loop;
        picked := picked || next_pick;
        similarities := similarities || nearest[next_pick];
        free[next_pick] := false;
        for i in 1..size loop
            if free[i] then
                nearest[i] := greatest(nearest[i], cosines[(next_pick - 1) * size + i]);
            end if;
        end loop;
    end loop;

    select
        array_agg((
            u.chunk_id, u.item_id, u.keyword, u.matched, u.vector, u.metadata, u.boosts, u.hybrid, u.relevance, u.strength,
            u.final, u.cut, u.rank, u.new_place
        )::engine.candidate order by u.new_place),
        jsonb_agg(jsonb_build_object(
            'item', u.item_id, 'rank', u.rank, 'similarity', round(u.similarity::numeric, 4)
        ) order by u.new_place) filter (where u.similarity is not null)
    into candidates, decisions
    from (
        select r.*, p.similarity, row_number() over (order by p.turn nulls last, r.rank) as new_place
        from unnest(ranked) as r
        left join unnest(picked, similarities) with ordinality as p (rank, similarity, turn) on p.rank = r.rank
    ) as u;
end
$$;
