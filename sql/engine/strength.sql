-- Strength: how far an item is to be trusted, 0.05..1, whatever is asked. The seven signals are kept apart in
-- almagest.strength_signals; the scalar is never stored, but computed from them for each search, so that time passes by
-- itself and a change made here holds for every item at once:
--
--     strength = max(floors, starting strength x evidence x retention)
--
-- where the first two meet as odds, so that the result stays within 0..1 and each signal only ever helps or harms.

-- What six of the signals say, in logits; the seventh, when the item was last validated, is engine.retention's.
--
--     sum of weight x (signal - neutral)
--
-- Strength is the need odds of Anderson and Schooler (1991): the odds that an item is needed are those it starts with,
-- times a factor for each piece of evidence, so their logarithms add up. A new item's signals are neutral (just used,
-- not yet asked for, neither doubted nor trusted) and leave it at its starting strength; so is a signal that is null.
-- A signal at its extreme changes the odds e-fold, so that none of them can run the show.
create or replace function engine.evidence(s almagest.strength_signals)
returns float8 language sql immutable parallel safe as $$
    select coalesce((s).recency - 1, 0)
        + coalesce((s).frequency, 0)
        + coalesce((s).diversity, 0)
        + coalesce((s).centrality, 0)
        + 2 * coalesce((s).confidence - 0.5::float8, 0)
        + 2 * coalesce((s).source_trust - 0.5::float8, 0)
$$;

-- What disuse leaves of a strength, 1 falling towards 0.
--
--     0.5 x exp(-m) + 0.5 x (1 + m) ^ -0.2,    m = spans of 30 days since the last validation, but for the first
--
-- Thirty days of grace, then two components: one that erodes within weeks, and the power law of Wickelgren (1974),
-- which barely moves over years, as retention does since Ebbinghaus (1885; Murre and Dros 2015). Thirty days beyond the
-- grace .62 is left, after half a year .35, after two years .26, after ten .19; of the exponential alone, nothing.
create or replace function engine.retention(validated_at timestamptz, at timestamptz)
returns float8 language sql immutable parallel safe as $$
    select engine.retention_after(extract(epoch from at - validated_at)::float8 / 2592000 - 1)
$$;

-- The same by m; less than 0, and null, is within the grace.
create or replace function engine.retention_after(m float8)
returns float8 language sql immutable parallel safe as $$
    -- exp() of less than -745 is an error, no 0
    select 0.5::float8 * exp(-least(greatest(m, 0::float8), 700::float8))
        + 0.5::float8 * power(1::float8 + greatest(m, 0::float8), -0.2::float8)
$$;

-- s            may be null, or have null signals: neutral ones, and 0.5 to start with
-- type_floor   of the item's type; null for none
-- evergreen    a floor of 0.5, as protected types have it
-- at           the time that counts as now
-- Costs a microsecond, and is inlined.
create or replace function engine.strength(
    s almagest.strength_signals, type_floor real, evergreen boolean, at timestamptz
)
returns float8 language sql immutable parallel safe as $$
    select least(1::float8, greatest(
        0.05::float8,
        type_floor::float8,
        case when evergreen then 0.5::float8 end,
        engine.retention((s).validated_at, at)
        / (1::float8 + (1::float8 / coalesce((s).starting_strength, 0.5)::float8 - 1::float8) * exp(-engine.evidence(s)))
    ))
$$;

-- The confidence of what was confirmed once more: a fifth of the doubt that was left goes, until 0.95 is reached. To be
-- told again and again is not to be certain.
create or replace function engine.confirmed(confidence real)
returns real language sql immutable parallel safe as $$
    select greatest(confidence, least(0.95, confidence + 0.2 * (1 - confidence)))::real
$$;

-- The strength of one item now.
create or replace function engine.item_strength(i almagest.items)
returns float8 language sql stable as $$
    select engine.strength(
        (select s from almagest.strength_signals as s where s.item_id = (i).id),
        (select t.strength_floor from engine.item_types((i).org_id) as t where t.name = (i).type),
        (i).evergreen, now()
    )
$$;

-- That an item still holds: its decay starts anew, and confidence in it grows.
create or replace function engine.validate_item(c engine.caller, i almagest.items)
returns void language sql as $$
    update almagest.items as it set validated_at = now() where it.id = (i).id;
    update almagest.strength_signals as s
    set validated_at = now(), confidence = engine.confirmed(s.confidence), updated_at = now()
    where s.item_id = (i).id;
    select engine.audit(c, i, 'validated');
$$;

-- The types of an org: the built-in ones, each replaced by the org's own of the same name, and what the org added.
create or replace function engine.item_types(org uuid)
returns setof almagest.item_types language sql stable as $$
    select distinct on (t.name) t.*
    from almagest.item_types as t
    where t.org_id = org or t.org_id is null
    order by t.name, t.org_id nulls last
$$;
