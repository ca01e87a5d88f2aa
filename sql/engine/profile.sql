-- The knobs of a search. The built-in values are here, in one place; a built-in profile is laid over them, then the
-- org's own profile of that name.

create or replace function engine.default_knobs()
returns jsonb language sql immutable parallel safe as $$
    select jsonb_build_object(
        'keyword_weight', 0.7,
        'vector_weight', 0.3,
        'metadata_weight', 0.0,
        'keyword_scale', 10.0,      -- c of s / (s + c), which maps BM25 to 0..1
        'length_normalisation', 0.75,
        'vector_threshold', 0.2,   -- weaker similarities never enter
        'fused_floor', 0.0,         -- weaker candidates are gone; a word of all the items of a small org scores near 0
        'candidates', 50,           -- of each leg, or twice the answer where that is more
        'high', 0.55,               -- relevance classes, on the fused score
        'standard', 0.3,
        'strength_low', 0.6         -- what a strength of 0 multiplies by; 1 multiplies by 1
    )
$$;

-- The knobs of a profile; 422 unknown_profile where neither the org nor the system has one of that name.
create or replace function engine.knobs(c engine.caller, profile text)
returns jsonb language plpgsql stable as $$
declare
    built_in jsonb := (select p.knobs from almagest.search_profiles as p where p.org_id is null and p.name = profile);
    own jsonb := (select p.knobs from almagest.search_profiles as p where p.org_id = (c).org_id and p.name = profile);
begin
    if built_in is null and own is null then
        perform engine.problem(422, 'unknown_profile', format('There is no search profile %L.', profile));
    end if;
    return engine.default_knobs() || coalesce(built_in, '{}') || coalesce(own, '{}');
end
$$;
