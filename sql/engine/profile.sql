-- The knobs of a search, by profile: a named set of them. Layers, each laid over the one before:
--   1. engine.default_knobs, the built-in values
--   2. the built-in profile of that name
--   3. a row of almagest.search_profiles without an org: what an installation sets for all of its orgs
--   4. the org's own row
-- A layer may hold `modes`, with knobs for one mode of answering, which count in that mode alone. All layers are read
-- by each search, so that a change acts on the next one.

create or replace function engine.default_knobs()
returns jsonb language sql immutable parallel safe as $$
    select jsonb_build_object(
        'fusion', 'weighted',           -- or rrf
        'keyword_weight', 0.7,
        'vector_weight', 0.3,
        'metadata_weight', 0.0,
        'keyword_scale', 10.0,          -- c of s / (s + c), which maps BM25 to 0..1
        'message_keyword_scale', 30.0,
        'length_normalisation', 0.75,   -- b of BM25
        'message_length_normalisation', 0.2,
        'vector_threshold', 0.25,       -- weaker similarities never enter
        'fused_floor', 0.0,             -- weaker candidates are gone
        'keyword_only_cap', 0.3,        -- the most that words alone count for, below the vector threshold
        'candidates', 30,               -- of each leg, or twice the answer where that is more
        'neighbour_previous', 0.8,      -- how much of its neighbours' words a chunk has, of 1
        'neighbour_next', 0.5,
        'neighbour_two_away', 0.5,
        'neighbour_slice', 0.0,         -- the same between slices of one document
        'identifier_boost', 0.2,        -- added by the share of the query that are identifiers it holds,
        'author_boost', 0.08,           -- where the query names who said it,
        'date_boost', 0.15,             -- its time,
        'conversation_boost', 0.15,     -- by the best of its conversation, of 1,
        'when_boost', 0.06,             -- and where it says when and the query asks for that
        'question_turn_share', 0.9,     -- what is left of a turn that only asks
        'high', 0.6,                    -- relevance classes, on the calibrated score
        'standard', 0.4,
        'strength_low', 0.6,            -- what a strength of 0 multiplies by,
        'strength_high', 1.0,           -- and one of 1
        'mmr_lambda', 0.98,
        'exhaustive', false             -- true: no pruning in the keyword leg
    )
$$;

-- What each knob is, and what it may be: a number, an integer, a boolean or a choice. The one place that says so.
create or replace function engine.knob_definitions()
returns table (knob text, kind text, minimum float8, maximum float8, choices text[], description text)
language sql immutable parallel safe as $$
    values
        ('fusion', 'choice', null, null, '{weighted,rrf}'::text[], 'How the scores of the legs become one.'),
        ('keyword_weight', 'number', 0, 1, null, 'Weight of the keyword leg.'),
        ('vector_weight', 'number', 0, 1, null, 'Weight of the vector leg.'),
        ('metadata_weight', 'number', 0, 1, null, 'Weight of the match of title, tags, origin, priority and dates.'),
        ('keyword_scale', 'number', 0.1, 1000, null, 'The BM25 score that counts as one half.'),
        ('message_keyword_scale', 'number', 0.1, 1000, null, 'The same for messages of a conversation.'),
        ('length_normalisation', 'number', 0, 1, null, 'How far BM25 discounts what is long.'),
        ('message_length_normalisation', 'number', 0, 1, null, 'The same for messages of a conversation.'),
        ('vector_threshold', 'number', 0, 1, null, 'Similarity below which a vector match does not enter.'),
        ('fused_floor', 'number', 0, 1, null, 'Fused score below which a candidate is gone.'),
        ('keyword_only_cap', 'number', 0, 1, null, 'The most that words alone count for, below the vector threshold.'),
        ('candidates', 'integer', 1, 500, null, 'Candidates that each leg sends; never less than twice the answer.'),
        ('neighbour_previous', 'number', 0, 1, null, 'How much the words of the message before count.'),
        ('neighbour_next', 'number', 0, 1, null, 'How much the words of the message after count.'),
        ('neighbour_two_away', 'number', 0, 1, null, 'How much the words of the messages two away count.'),
        ('neighbour_slice', 'number', 0, 1, null, 'How much the words of the next slices of a document count.'),
        ('identifier_boost', 'number', 0, 1, null, 'Added by the share of the query that are identifiers it holds.'),
        ('author_boost', 'number', 0, 1, null, 'Added where the query names who said it.'),
        ('date_boost', 'number', 0, 1, null, 'Added where the query names its time.'),
        ('conversation_boost', 'number', 0, 1, null, 'Share of its conversation''s best score that is added.'),
        ('when_boost', 'number', 0, 1, null, 'Added where it tells a time and the query asks for one.'),
        ('question_turn_share', 'number', 0, 1, null, 'What is left of the score of a turn that only asks.'),
        ('high', 'number', 0, 1, null, 'Relevance is high from here on.'),
        ('standard', 'number', 0, 1, null, 'Relevance is standard from here on; less than high.'),
        ('strength_low', 'number', 0, 1, null, 'What a strength of 0 multiplies the score by.'),
        ('strength_high', 'number', 0, 1, null, 'What a strength of 1 multiplies the score by; not less than the other.'),
        ('mmr_lambda', 'number', 0, 1, null, 'Diversification: 1 is by score alone, and less spreads the answer.'),
        ('exhaustive', 'boolean', null, null, null, 'Whether the keyword leg reads all that matches.')
$$;

-- The profiles that every org has.
create or replace function engine.built_in_profiles()
returns table (name text, description text, knobs jsonb) language sql immutable parallel safe as $$
    values
        ('user_search', 'Somebody asks.', '{}'::jsonb),
        ('injection', 'Memories come into a prompt by themselves.', '{}'),
        ('middleware', 'A program asks, between an agent and its model.', '{}'),
        (
            'documents', 'Somebody asks of documents rather than of conversations.',
            '{"keyword_weight": 0.65, "vector_weight": 0.35, "mmr_lambda": 1}'
        ),
        (
            'vector_metadata', 'By meaning and attributes, 0.7 to 0.3; by words where there is no vector.',
            '{"keyword_weight": 0, "vector_weight": 0.7, "metadata_weight": 0.3}'
        )
$$;

-- Knobs laid over others, and those of a mode over the others' of that mode.
create or replace function engine.lay_over(base jsonb, knobs jsonb)
returns jsonb language sql immutable parallel safe as $$
    select base || knobs || case when base ? 'modes' and knobs ? 'modes' then jsonb_build_object('modes', (
        select jsonb_object_agg(mode, coalesce(base -> 'modes' -> mode, '{}') || coalesce(knobs -> 'modes' -> mode, '{}'))
        from jsonb_object_keys((base -> 'modes') || (knobs -> 'modes')) as mode
    )) else '{}' end
$$;

-- All knobs of an org's profile, with its modes; null where there is no such profile. Of org null: what orgs without
-- knobs of their own have.
create or replace function engine.profile_knobs(org uuid, profile text)
returns jsonb language plpgsql stable as $$
declare
    knobs jsonb := engine.default_knobs();
    layer jsonb;
begin
    for layer in
        select l.knobs
        from (
            select 1 as place, b.knobs from engine.built_in_profiles() as b where b.name = profile
            union all
            select case when p.org_id is null then 2 else 3 end, p.knobs
            from almagest.search_profiles as p
            where p.name = profile and (p.org_id is null or p.org_id = org)
        ) as l
        order by l.place
    loop
        knobs := engine.lay_over(knobs, layer);
    end loop;
    return case when found then knobs end;
end
$$;

-- The knobs of a profile for a search; 422 unknown_profile where neither the org nor the system has one of that name.
create or replace function engine.knobs(c engine.caller, profile text)
returns jsonb language plpgsql stable as $$
declare
    knobs jsonb := engine.profile_knobs((c).org_id, profile);
begin
    if knobs is null then
        perform engine.field_problem(
            'unknown_profile', 'profile', 'must be the name of a search profile', 'There is no search profile of this name.'
        );
    end if;
    return knobs;
end
$$;

-- The first of these weights that is not 0; 1 where all are.
create or replace function engine.first_weight(knobs jsonb, names text[])
returns jsonb language sql immutable parallel safe as $$
    select coalesce((
        select knobs -> n.name
        from unnest(names) with ordinality as n (name, place)
        where (knobs ->> n.name)::float8 > 0
        order by n.place
        limit 1
    ), '1')
$$;

-- The knobs that count in one mode of answering. A leg that has to answer without the other one takes the other's
-- weight where it has none of its own, or else that of the attributes, which alone would leave out whatever has none
-- that match: so no weights leave a degraded search without an answer.
create or replace function engine.mode_knobs(knobs jsonb, mode text)
returns jsonb language sql immutable parallel safe as $$
    select laid || case
        when mode in ('lexical', 'substring') then jsonb_build_object(
            'keyword_weight', engine.first_weight(laid, '{keyword_weight,vector_weight,metadata_weight}')
        )
        when mode = 'vector' then jsonb_build_object(
            'vector_weight', engine.first_weight(laid, '{vector_weight,keyword_weight,metadata_weight}')
        )
        else '{}'
    end
    from (select (knobs - 'modes') || coalesce(knobs -> 'modes' -> mode, '{}') as laid) as k
$$;

-- Numbers to six decimals, in modes as well: smaller ones mean nothing, and their products are errors.
create or replace function engine.round_knobs(knobs jsonb)
returns jsonb language sql immutable parallel safe as $$
    select coalesce(jsonb_object_agg(k.key, case jsonb_typeof(k.value)
        when 'number' then to_jsonb(trim_scale(round(k.value::numeric, 6)))
        when 'object' then engine.round_knobs(k.value)
        else k.value
    end), '{}')
    from jsonb_each(knobs) as k
$$;

-- What is wrong with a value for a knob; null where nothing is.
create or replace function engine.knob_error(knob text, value jsonb)
returns text language plpgsql immutable parallel safe as $$
declare
    d record;
begin
    select * into d from engine.knob_definitions() as k where k.knob = knob_error.knob;
    return case
        when not found then 'unknown knob'
        when d.kind = 'boolean' then case when jsonb_typeof(value) <> 'boolean' then 'must be true or false' end
        when d.kind = 'choice' then case
            when jsonb_typeof(value) <> 'string' or value #>> '{}' <> all(d.choices)
                then 'must be one of ' || array_to_string(d.choices, ', ')
        end
        when jsonb_typeof(value) <> 'number'
            or value::numeric not between d.minimum::numeric and d.maximum::numeric
            or (d.kind = 'integer' and value::numeric % 1 <> 0)
            then format(
                'must be %s from %s to %s', case d.kind when 'integer' then 'a whole number' else 'a number' end,
                d.minimum, d.maximum
            )
    end;
end
$$;

-- What is wrong with knobs as somebody gives them, each by itself.
create or replace function engine.knob_errors(knobs jsonb)
returns table (field text, message text) language sql immutable parallel safe as $$
    with modes as (
        select m.key as mode, m.value as knobs
        from jsonb_each(case when jsonb_typeof(knobs -> 'modes') = 'object' then knobs -> 'modes' else '{}' end) as m
    )
    select e.field, e.message
    from (
        select k.key as field, engine.knob_error(k.key, k.value) as message from jsonb_each(knobs - 'modes') as k
        union all
        select 'modes', 'must be an object' where jsonb_typeof(knobs -> 'modes') <> 'object'
        union all
        select 'modes.' || m.mode, case
            when m.mode not in ('hybrid', 'vector', 'lexical', 'substring') then 'unknown mode'
            when jsonb_typeof(m.knobs) <> 'object' then 'must be an object'
        end
        from modes as m
        union all
        select 'modes.' || m.mode || '.' || k.key, engine.knob_error(k.key, k.value)
        from modes as m
        cross join jsonb_each(case when jsonb_typeof(m.knobs) = 'object' then m.knobs else '{}' end) as k
    ) as e
    where e.message is not null
$$;

-- What is wrong with all the knobs of a profile together, in general and in each of its modes.
create or replace function engine.knob_conflicts(knobs jsonb)
returns table (field text, message text) language sql immutable parallel safe as $$
    select l.prefix || e.field, e.message
    from (
        select '' as prefix, knobs
        union all
        select 'modes.' || m.key || '.', knobs || m.value from jsonb_each(knobs -> 'modes') as m
    ) as l
    cross join lateral (
        select 'standard' as field, 'must be less than high' as message
        where (l.knobs ->> 'standard')::float8 >= (l.knobs ->> 'high')::float8
        union all
        select 'strength_low', 'must not be more than strength_high'
        where (l.knobs ->> 'strength_low')::float8 > (l.knobs ->> 'strength_high')::float8
        union all
        select 'keyword_weight', 'must not be 0 where vector_weight and metadata_weight are 0 too'
        where (l.knobs ->> 'keyword_weight')::float8 + (l.knobs ->> 'vector_weight')::float8
            + (l.knobs ->> 'metadata_weight')::float8 = 0
    ) as e
$$;

-- What is wrong with knobs by themselves, as they were given, or laid over a base, as they are kept; as the 422
-- invalid_knobs that names each, and null where nothing is. It repeats names that a caller made up, so it is answered,
-- not raised: what is raised is in the log.
create or replace function engine.knob_problem(knobs jsonb, base jsonb)
returns jsonb language plpgsql stable as $$
declare
    errors jsonb := (
        select jsonb_agg(jsonb_build_object('field', 'knobs.' || left(e.field, 200), 'message', e.message))
        from (select * from engine.knob_errors(knobs) limit 20) as e
    );
begin
    errors := coalesce(errors, (
        select jsonb_agg(jsonb_build_object('field', 'knobs.' || e.field, 'message', e.message))
        from engine.knob_conflicts(engine.lay_over(base, engine.round_knobs(knobs))) as e
    ));
    return case when errors is not null then jsonb_build_object(
        'status', 422, 'code', 'invalid_knobs', 'errors', errors, 'detail', format('The knobs are not valid: %s.', (
            select string_agg(format('%s: %s', e ->> 'field', e ->> 'message'), '; ') from jsonb_array_elements(errors) as e
        ))
    ) end;
end
$$;

-- A profile as an org has it; null where there is none of that name.
create or replace function engine.profile_record(org uuid, profile text)
returns jsonb language sql stable as $$
    select jsonb_build_object(
        'name', profile, 'description', b.description, 'built_in', b.name is not null, 'own', own.knobs,
        'updated_at', engine.utc(own.updated_at), 'knobs', engine.profile_knobs(org, profile)
    )
    from (values (profile)) as wanted (name)
    left join engine.built_in_profiles() as b on b.name = wanted.name
    left join almagest.search_profiles as own on own.org_id = org and own.name = wanted.name
    where engine.profile_knobs(org, profile) is not null
$$;

-- The same; 404 unknown_profile.
create or replace function engine.demand_profile(org uuid, profile text)
returns jsonb language plpgsql stable as $$
declare
    record jsonb := engine.profile_record(org, profile);
begin
    if record is null then
        perform engine.problem(404, 'unknown_profile', 'There is no search profile of this name.');
    end if;
    return record;
end
$$;

-- That somebody changed how an org searches; caller null is the system.
create or replace function engine.audit_profile(caller jsonb, org uuid, profile text, action text, knobs jsonb)
returns void language sql as $$
    insert into almagest.audit_log (org_id, name, action, actor_user_id, actor_key_id, detail)
    values (
        org, profile, action, (caller ->> 'user')::uuid, (caller ->> 'key')::uuid, jsonb_build_object('knobs', knobs)
    )
$$;
