-- Ranking: what the legs found, and what lies beside it, scored by both legs, fused, boosted and weighed by strength.

-- How well a candidate answers, on a scale that does not drift as an org grows: the share of the query's terms that it
-- holds, and its cosine, each where that leg ran.
create or replace function engine.calibrated(matched float8, vector float8, mode text)
returns float8 language sql immutable parallel safe as $$
    select case mode when 'hybrid' then 0.5 * matched + 0.5 * vector when 'vector' then vector else matched end
$$;

-- The class of a calibrated score, before strength: high, standard or low.
create or replace function engine.relevance_class(calibrated float8, knobs jsonb)
returns text language sql immutable parallel safe as $$
    select case
        when calibrated >= (knobs ->> 'high')::float8 then 'high'
        when calibrated >= (knobs ->> 'standard')::float8 then 'standard'
        else 'low'
    end
$$;

-- The fused score of the legs, 0..1.
--   keyword, vector, metadata  null where the leg did not run
--   weights                    theirs, in this order; 0 for a leg that did not run
--   cap                        the most that the keyword leg counts for, or null
create or replace function engine.fuse(
    keyword float8, vector float8, metadata float8, weights float8[], cap float8
)
returns float8 language sql immutable parallel safe as $$
    select (
        weights[1] * coalesce(least(keyword, cap), 0) + weights[2] * coalesce(vector, 0)
        + weights[3] * coalesce(metadata, 0)
    ) / nullif(weights[1] + weights[2] + weights[3], 0)
$$;

-- Reciprocal rank fusion (Cormack et al. 2009, k = 60), 0..1, scaled so that the first of all that have a weight has 1.
--   ranks    by keyword, vector and metadata; null where a candidate was not found by it
--   weights  theirs; 0 for a leg that did not run
create or replace function engine.fuse_ranks(ranks bigint[], weights float8[])
returns float8 language sql immutable parallel safe as $$
    select 61 * (
        coalesce(weights[1] / (60 + ranks[1]), 0) + coalesce(weights[2] / (60 + ranks[2]), 0)
        + coalesce(weights[3] / (60 + ranks[3]), 0)
    ) / nullif(weights[1] + weights[2] + weights[3], 0)
$$;

-- asked           the query's text; terms all of its terms, q those that the caller's chunks hold
-- seeds           chunks that the legs found
-- seed_scores     of each, 0..1, in mode substring; null in the others
-- within          only these chunks, or null for all
-- by_chunk        whether an item may come by several of its chunks
-- shortlist       how many are boosted and weighed, the best of the legs alone
-- as_of           null for now; otherwise boosts and metadata are those of the version valid then
-- Returns how many candidates there were, and the shortlist, best first; those that fall out say why in cut: floor, or
-- duplicate where a better one has the same text. What it reads it reads by primary key, so one plan serves all calls,
-- in the order in which the joins are written; to plan it anew would take longer than to run it.
create or replace function engine.rank(
    c engine.caller, asked text, terms text[], q engine.query_terms, query @extschema:vector@.halfvec, model smallint,
    mode text, states text[], seeds bigint[], seed_scores float8[], within bigint[], by_chunk boolean, knobs jsonb,
    shortlist int, as_of timestamptz,
    out total int, out candidates engine.candidate[]
)
language plpgsql stable
set plan_cache_mode = force_generic_plan set join_collapse_limit = 1 set enable_seqscan = off as $$
#variable_conflict use_column
declare
    wish record := engine.parse_query(asked);
    names_date int := (cardinality(wish.years || wish.months || wish.days) > 0)::int;
    has_words boolean := mode <> 'vector';
    has_vectors boolean := mode in ('hybrid', 'vector');
    by_ranks boolean := knobs ->> 'fusion' = 'rrf' and mode = 'hybrid';
    weights float8[] := array[
        case when has_words then (knobs ->> 'keyword_weight')::float8 else 0 end,
        case when has_vectors then (knobs ->> 'vector_weight')::float8 else 0 end,
        (knobs ->> 'metadata_weight')::float8
    ];
    vector_threshold float8 := (knobs ->> 'vector_threshold')::float8;
    keyword_only_cap float8 := (knobs ->> 'keyword_only_cap')::float8;
    fused_floor float8 := (knobs ->> 'fused_floor')::float8;
    identifier_boost float8 := (knobs ->> 'identifier_boost')::float8;
    author_boost float8 := (knobs ->> 'author_boost')::float8;
    date_boost float8 := (knobs ->> 'date_boost')::float8;
    when_boost float8 := case when wish.asks_when then (knobs ->> 'when_boost')::float8 else 0 end;
    question_turn_share float8 := (knobs ->> 'question_turn_share')::float8;
    conversation_boost float8 := (knobs ->> 'conversation_boost')::float8;
    strength_low float8 := (knobs ->> 'strength_low')::float8;
    strength_high float8 := (knobs ->> 'strength_high')::float8;
begin
    with words as materialized (
        select w.* from engine.word_scores(q, cardinality(terms), seeds, knobs) as w where mode <> 'substring'
        union all
        -- what has no terms to be scored by
        select
            k.id, k.item_id, k.item_id, coalesce(s.score, 0), coalesce(s.score, 0), 0, 0, false, false,
            hashtextextended(k.text, 0)
        from unnest(seeds, seed_scores) as s (id, score)
        join almagest.chunks as k on k.id = s.id
        where mode = 'substring' or not exists (select from almagest.lexical as l where l.chunk_id = s.id)
    ),
    legs as materialized (
        select
            w.*, i.user_id is not null as own, i.updated_at, s.occurred_at, s.agent_name, s.type, s.evergreen,
            case when has_words then w.score end as keyword,
            -- null where there is no vector yet
            case when e.vector is not null then
                least(1, greatest(0, 1::float8 - (e.vector operator(@extschema:vector@.<=>) query)))
            end as vector,
            least(1, (
                w.attributes + (i.origin = any(terms))::int
                + names_date * engine.is_at(wish.years, wish.months, wish.days, coalesce(s.occurred_at, i.created_at))
            ) / greatest(1, cardinality(terms) + names_date) * (0.75 + s.priority / 2)) as metadata
        from words as w
        join almagest.items as i on i.id = w.item_id
        cross join lateral (
            -- what it said of itself at the time asked for
            select i.occurred_at, i.agent_name, i.type, i.evergreen, i.priority
            where as_of is null or i.updated_at <= as_of
            union all
            select v.occurred_at, v.agent_name, v.type, v.evergreen, v.priority
            from almagest.item_versions as v
            where as_of is not null -- or else the versions are not even looked at
                and v.item_id = i.id and i.updated_at > as_of and v.valid_from <= as_of and v.valid_to > as_of
        ) as s
        left join almagest.embeddings as e on e.chunk_id = w.chunk_id and e.model_id = model and has_vectors
        -- the predicate once more, on the item itself: what a chunk's copy says may be older
        where engine.visible(c, i.org_id, i.user_id, i.client_id, i.deal_id, i.agent_ids) and i.state = any(states)
            and (within is null or w.chunk_id in (select unnest(within)))
    ),
    fused as (
        select l.*, coalesce(case
            when by_ranks then engine.fuse_ranks(array[
                -- what is scored by a leg but was not found by it has no rank there: the last of a few would be near 1
                case when l.keyword > 0 then rank() over (order by l.keyword desc nulls last) end,
                case when m.vector >= vector_threshold then rank() over (order by m.vector desc nulls last) end,
                case when l.metadata > 0 then rank() over (order by l.metadata desc nulls last) end
            ], weights)
            else engine.fuse(
                l.keyword, m.vector, l.metadata, weights,
                -- a hit with only words to speak for it, unless one of them is an identifier that was asked for
                case when mode = 'hybrid' and l.vector < vector_threshold and l.identifiers = 0 then keyword_only_cap end
            )
        end, 0) as fused
        from legs as l
        cross join lateral (
            -- a chunk that waits for its vector is taken to mean nearly as much of the query as its words are
            select case when has_vectors then coalesce(l.vector, 0.9 * l.matched) end as vector
        ) as m
    ),
    texts as (
        select f.*, f.text_hash is not null and row_number() over (
            partition by f.text_hash order by f.fused desc, f.own desc, f.updated_at desc, f.chunk_id desc
        ) > 1 as is_copy
        from fused as f
    ),
    best as (
        -- an item whose best text another one has too is told by its next
        select t.*, row_number() over (
            partition by t.item_id order by t.is_copy, t.fused desc, t.keyword desc nulls last, t.chunk_id
        ) as place_in_item
        from texts as t
    ),
    one_each as (
        select
            b.*, count(*) over () as total, identifier_boost * b.identifiers as identifier,
            case when b.sequence <> b.item_id then conversation_boost * max(b.fused) over (partition by b.sequence) else 0 end
            as conversation
        from best as b
        where by_chunk or b.place_in_item = 1
    ),
    shortlisted as materialized (
        select o.* from one_each as o
        order by o.fused + o.identifier + o.conversation desc, o.keyword desc nulls last, o.chunk_id desc
        limit shortlist
    ),
    types as materialized (
        select t.name, t.strength_floor from engine.item_types((c).org_id) as t
    ),
    boosted as (
        select
            b.*, engine.strength(s, t.strength_floor, b.evergreen, now()) as strength,
            case when strpos(wish.words, engine.plain_words(b.agent_name)) > 0 then author_boost else 0 end as author,
            date_boost * engine.is_at(wish.years, wish.months, wish.days, b.occurred_at) as date,
            case when b.says_when then when_boost else 0 end as said_when,
            case when b.sequence <> b.item_id and b.only_asks then question_turn_share else 1 end as asking
        from shortlisted as b
        left join almagest.strength_signals as s on s.item_id = b.item_id
        left join types as t on t.name = b.type
    ),
    weighed as (
        select
            b.*, h.hybrid, h.hybrid * (strength_low + (strength_high - strength_low) * b.strength) as final,
            case when b.fused <= 0 or b.fused < fused_floor then 'floor' end as fallen
        from boosted as b
        cross join lateral (
            select least(1, (
                b.fused + b.identifier + b.author + b.date + b.conversation + b.said_when
            ) * b.asking) as hybrid
        ) as h
    ),
    ordered as (
        -- rounded, since two sums of the same parts may differ in the last bit; where both are capped, the one that its
        -- words speak more for; then the caller's own before the shared
        select w.*, row_number() over (
            order by
                round(w.final::numeric, 9) desc, round(w.keyword::numeric, 9) desc nulls last, w.own desc,
                w.updated_at desc, w.chunk_id desc
        ) as turn
        from weighed as w
    ),
    cut as (
        select o.*, coalesce(o.fallen, case
            -- no hash: of before there were any, until its terms are made again
            when o.text_hash is not null and row_number() over (partition by o.fallen, o.text_hash order by o.turn) > 1
                then 'duplicate'
        end) as cut
        from ordered as o
    ),
    ranked as (
        select c.*, row_number() over (order by c.cut nulls first, c.turn) as rank from cut as c
    )
    select
        coalesce(max(r.total), 0),
        coalesce(array_agg((
            r.chunk_id, r.item_id, r.keyword, r.matched, r.vector, r.metadata,
            jsonb_strip_nulls(jsonb_build_object(
                'identifier', nullif(r.identifier, 0), 'author', nullif(r.author, 0), 'date', nullif(r.date, 0),
                'conversation', nullif(r.conversation, 0), 'when', nullif(r.said_when, 0),
                'question_turn', nullif(r.asking, 1)
            )),
            r.hybrid, engine.relevance_class(engine.calibrated(r.matched, coalesce(r.vector, 0), mode), knobs), r.strength,
            r.final, r.cut, r.rank, r.rank
        )::engine.candidate order by r.rank), '{}')
    into total, candidates
    from ranked as r;
end
$$;
