-- The substring leg, the last that is left: where there is no vector and the keyword leg has no terms, no rows or no
-- answer, what the caller may see is looked through for the query as it stands. It needs nothing but items and chunks.
-- A query of signs alone (<->, =>) is looked for here before its vector is asked, which says next to nothing of them.

-- Whether a query has no letter and no digit of any script, but something to look for.
create or replace function engine.only_signs(query text)
returns boolean language sql immutable parallel safe as $$
    select coalesce(bool_and(f ~ '\S' and f !~ '[[:alnum:]]'), false) from engine.fold(left(query, 1000)) as f
$$;

-- How many chunks it looks through, those of the newest items first: about 0.2 s of English, at most 1.5 s of anything.
-- (Trigrams would find older ones too, but not a query of two letters or signs, which is what comes here; and their
-- index would cost every write for what is hardly ever asked.)
create or replace function engine.substring_rows()
returns int language sql immutable parallel safe as $$ select 10000 $$;

-- Text in the form in which it is compared: accents, width and case folded away.
create or replace function engine.comparable(content text)
returns text language sql immutable parallel safe as $$ select lower(engine.fold(content)) $$;

-- Words of a comparable query, 16 at the most, without the signs around them; signs alone stand for themselves.
create or replace function engine.substring_words(query text)
returns text[] language plpgsql immutable parallel safe as $$
begin
    return array(
        select coalesce(nullif(btrim(t.word, '.,;:!?''"()[]{}<>-_*/\&'), ''), t.word)
        from regexp_split_to_table(query, '\s+') with ordinality as t (word, place)
        where t.word <> ''
        group by 1
        order by min(t.place)
        limit 16
    );
end
$$;

-- asked    the query's text; its first 1000 characters count
-- within   ids of the chunks that may answer, or null for all
-- Returns the best chunk of each item that holds the query, or at least half of its words, in its title or text.
--   score  .9 to 1 where the whole query is there, at most .9 times the share of its words where it is not: higher the
--          earlier it stands
create or replace function engine.substring_leg(
    c engine.caller, asked text, states text[], within bigint[], pool int
)
returns table (chunk_id bigint, score float8)
language plpgsql stable as $$
#variable_conflict use_column
declare
    wanted text := engine.comparable(btrim(regexp_replace(left(asked, 1000), '\s+', ' ', 'g')));
    words text[] := engine.substring_words(wanted);
    most int := engine.substring_rows();
begin
    if cardinality(words) = 0 then
        return;
    end if;
    return query
    with newest as (
        -- limited twice, so that the newest items come from their index and bring their chunks one by one
        select k.id, i.id as item_id, i.title, k.text
        from (
            select it.id, it.title, it.version from almagest.items as it
            where within is null and it.state = any(states)
                and engine.visible(c, it.org_id, it.user_id, it.client_id, it.deal_id, it.agent_ids)
            order by it.updated_at desc limit most
        ) as i
        cross join lateral (
            select ch.id, ch.text from almagest.chunks as ch
            where ch.item_id = i.id and ch.version = i.version -- not what an edit has replaced
            order by ch.position limit most
        ) as k
        limit most
    ),
    chosen as (
        select k.id, k.item_id, i.title, k.text
        from almagest.chunks as k
        join almagest.items as i on i.id = k.item_id
        where k.id in (select unnest(within)) and i.state = any(states)
            and engine.visible(c, i.org_id, i.user_id, i.client_id, i.deal_id, i.agent_ids)
        order by i.updated_at desc limit most
    ),
    compared as (
        select r.id, r.item_id, engine.comparable(concat_ws(E'\n', r.title, r.text)) as content
        from (select * from newest union all select * from chosen) as r
        offset 0 -- folded once a row
    ),
    found as (
        select d.id, d.item_id, w.share * (w.base + 0.1::float8 * 100 / (99 + w.place)) as score
        from (select h.*, strpos(h.content, wanted) as at from compared as h offset 0) as d
        cross join lateral (
            select 1::float8 as share, 0.9::float8 as base, d.at as place where d.at > 0
            union all
            select count(*)::float8 / cardinality(words), 0.8::float8, min(strpos(d.content, word))
            from unnest(words) as word
            where d.at = 0 and strpos(d.content, word) > 0
            having count(*) > 0 and count(*) * 2 >= cardinality(words)
        ) as w
    )
    select b.id, b.score
    from (select distinct on (f.item_id) f.* from found as f order by f.item_id, f.score desc, f.id desc) as b
    order by b.score desc, b.id desc
    limit pool;
end
$$;
