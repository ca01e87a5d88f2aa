-- Boosts: small additions to the fused score for what a query says beside its words. Each is a knob of the profile, and
-- each one's share is in the trace.

-- The words of a text, folded and in lower case, with one space between and around them; null where it has none.
create or replace function engine.plain_words(content text)
returns text language sql immutable parallel safe as $$
    select nullif(regexp_replace(' ' || lower(engine.fold(content)) || ' ', '[^[:alnum:]]+', ' ', 'g'), ' ')
$$;

-- What a query asks for beside its words.
--   words   see engine.plain_words
--   years, months, days   that it names
--   asks_when   whether it asks for a time
create or replace function engine.parse_query(
    query text, out words text, out years int[], out months int[], out days int[], out asks_when boolean
)
language sql immutable parallel safe as $$
    select
        engine.plain_words(q),
        array(select m[1]::int from regexp_matches(q, '\m((?:19|20)\d\d)\M', 'g') as m),
        array(
            select array_position(
                '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}'::text[], lower(left(m[1], 3))
            )
            from regexp_matches(
                q,
                '\m(January|February|March|April|May|June|July|August|September|October|November|December'
                || '|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\M', 'g'
            ) as m
        ),
        array(
            select coalesce(m[1], m[2])::int
            from regexp_matches(
                q,
                '\m(\d\d?)(?:st|nd|rd|th)?(?: of)? (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)'
                || '|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]* (\d\d?)\M', 'g'
            ) as m
        ),
        q ~* '\m(when|what (date|day|month|year|time)|which (day|month|year)|how long ago|how (long|recently))\M'
    from left(query, 1000) as q
$$;

-- Whether a text says when: relative and absolute times.
create or replace function engine.says_when(content text)
returns boolean language sql immutable parallel safe as $$
    select content ~* (
        '\m(yesterday|today|tonight|tomorrow|ago|(last|next|this) (week|weekend|month|year|night|summer|winter|spring|fall'
        || '|monday|tuesday|wednesday|thursday|friday|saturday|sunday)|monday|tuesday|wednesday|thursday|friday|saturday'
        || '|sunday|january|february|march|april|june|july|august|september|october|november|december'
        || '|(19|20)\d\d|recently|just (got|had|went|started|finished)|years?|months?|weeks?)\M'
    )
$$;

-- Whether a turn only asks, after the name of who speaks.
create or replace function engine.only_asks(content text)
returns boolean language sql immutable parallel safe as $$
    select content ~ '\?["'')\s]*$' and length(content) < 200 and content !~ '[.!]\s+\S.*[.!]'
$$;

-- How far a time is one that a query names: 0, 0.5, or 1 where the day is the same too; 0 where it names none.
create or replace function engine.is_at(years int[], months int[], days int[], at timestamptz)
returns float8 language sql immutable parallel safe as $$
    select case
        when at is null or cardinality(years || months || days) = 0 then 0::float8
        when cardinality(years) > 0 and extract(year from at at time zone 'utc')::int <> all(years) then 0::float8
        when cardinality(months) > 0 and extract(month from at at time zone 'utc')::int <> all(months) then 0::float8
        when extract(day from at at time zone 'utc')::int = any(days) then 1::float8
        else 0.5::float8
    end
$$;
