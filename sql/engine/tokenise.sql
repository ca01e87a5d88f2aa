-- Text -> terms, the same for what is stored and what is asked. Three kinds of terms: English stems of words, whole
-- identifiers beside their parts, and Chinese, Japanese and Korean signs, one by one and two by two. A change of what
-- it returns is a new tokeniser_version, so that rows made by an older one can be found and made again.

create or replace function engine.tokeniser_version()
returns smallint language sql immutable parallel safe as $$ select 4::smallint $$;

-- Accents, width and compatibility forms folded away, also of the Latin letters that Unicode does not take apart; case
-- is kept, since identifiers still need it. Plain ASCII stays as it is.
create or replace function engine.fold(content text)
returns text language sql immutable parallel safe as $$
    select case when octet_length(content) = length(content) then content
        else replace(replace(translate(
            regexp_replace(normalize(content, nfkd), '[\u0300-\u036f]+', '', 'g'), 'øØłŁđĐħĦŧŦı', 'oOlLdDhHtTi'
        ), 'ß', 'ss'), 'ẞ', 'SS')
    end
$$;

-- Chinese, Japanese and Korean signs, as part of a bracket expression.
create or replace function engine.cjk_signs()
returns text language sql immutable parallel safe as $$
    select '\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3105-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f'
        '\uac00-\ud7ff\U00020000-\U0003347f'
$$;

-- Runs of these in a folded text as a space: a code that stands in one is found by itself.
create or replace function engine.without_cjk(folded text)
returns text language sql immutable parallel safe as $$
    select case when octet_length(folded) = length(folded) then folded
        else regexp_replace(folded, '[' || engine.cjk_signs() || ']+', ' ', 'g')
    end
$$;

-- An identifier and those that it is put together from, where they are more than a word: main.py of src/app/main.py,
-- example.org of me@example.org, maxRetries of config.maxRetries, dry-run of --dry-run.
create or replace function engine.identifier_forms(identifier text)
returns text[] language plpgsql immutable parallel safe as $$
begin
    return array(
        select identifier
        union
        select part from regexp_split_to_table(ltrim(identifier, '-#$@'), '[/\\:@]+') as part
        where part ~ '[-_.+#]|[[:lower:]][[:upper:]]|[[:upper:]]{2}[[:lower:]]{2}'
        union
        select part from regexp_split_to_table(ltrim(identifier, '-#$@'), '[./\\:@]+') as part
        where part ~ '[-_+#]|[[:lower:]][[:upper:]]|[[:upper:]]{2}[[:lower:]]{2}'
    );
end
$$;

-- Identifiers of a folded text, lower case, with repetitions: whatever joins word characters by signs (SID-48, a/b.py,
-- me@example.org, v1.2.3), holds a digit or an inner capital (E0425, camelCase, HTMLParser), or begins or ends with a
-- sign of its own (#1234, $HOME, @scope/pkg, --dry-run, C++, C#). The pattern takes every run of such characters whole,
-- so that no text makes it go back; which runs count is asked afterwards.
create or replace function engine.identifiers(folded text)
returns setof text language sql immutable parallel safe as $$
    select lower(form)
    from regexp_matches(
        engine.without_cjk(folded),
        '(?:--|[#$@])?[[:alnum:]_]+(?:[-./:@+#\\]{1,3}[[:alnum:]_]+)*(?:\+\+|#)?', 'g'
    ) as run
    cross join lateral unnest(
        case when run[1] ~ '[/\\:@.]|^-' then engine.identifier_forms(run[1]) else run end
    ) as form
    where length(run[1]) <= 200
        and run[1] ~ '[-_./:@+#$\\[:digit:]]|[[:lower:]][[:upper:]]|[[:upper:]]{2}[[:lower:]]{2}'
$$;

-- Signs of Han, Kana and Hangul, and bigrams of their runs: 猫 is a word, and so is 東京. Normalisation has split Hangul
-- into Jamo.
create or replace function engine.cjk_terms(folded text)
returns setof text language sql immutable parallel safe as $$
    select unnest(array[pair.sign, pair.sign || pair.next_sign])
    from (
        select sign, lead(sign) over (partition by number order by place) as next_sign
        from regexp_matches(normalize(folded, nfc), '[' || engine.cjk_signs() || ']+', 'g') with ordinality
            as run (match, number),
            unnest(string_to_array(match[1], null)) with ordinality as signs (sign, place)
    ) as pair
$$;

-- Terms without positions -> tsvector with them, which ts_rank needs to count occurrences (255 at the most each).
create or replace function engine.count_terms(terms text[])
returns tsvector language plpgsql immutable parallel safe as $$
begin
    return (
        select coalesce(string_agg(
            '''' || replace(replace(term, '\', '\\'), '''', '''''') || ''':' || places, ' '
        ), '')::tsvector
        from (
            select term, string_agg(least(place, 16383)::text, ',') as places
            from unnest(terms) with ordinality as placed (term, place)
            group by term
        ) as grouped
    );
end
$$;

-- content: any text -> its terms with positions. About 0.4 ms for 1200 characters of English. (In plpgsql, whose calls
-- cost a tenth of those of an SQL function that is not inlined.)
create or replace function engine.tokenise(content text)
returns tsvector language plpgsql immutable parallel safe as $$
declare
    folded text := engine.fold(content);
    words tsvector := to_tsvector(
        'pg_catalog.english',
        -- identifiers come apart for the parser, which would read SID-48 as sid and -48, List<Item> as markup, and ~5 as
        -- a file; three letters after a capital's neighbour are a word (HTMLParser), two may be a plural (URLs)
        regexp_replace(
            regexp_replace(
                regexp_replace(engine.without_cjk(folded), '([[:lower:]])([[:upper:]])', '\1 \2', 'g'),
                '([[:upper:]])([[:upper:]][[:lower:]]{2})', '\1 \2', 'g'
            ),
            '[-./:@+#<>&\\~]+', ' ', 'g'
        )
    );
    others text[] := array(select identifier from engine.identifiers(folded) as identifier);
begin
    -- the word index puts nine characters before each term, and none may have more than 2,046 bytes
    if octet_length(folded) > 2037 then
        words := ts_delete(words, array(
            select word from unnest(tsvector_to_array(words)) as word where octet_length(word) > 2037
        ));
    end if;
    if octet_length(folded) > length(folded) then
        others := others || array(select term from engine.cjk_terms(folded) as term where term is not null);
    end if;
    return case when others = '{}' then words else words || engine.count_terms(others) end;
end
$$;

-- How many terms a tsvector counts, repetitions included: the document length of BM25.
create or replace function engine.term_count(terms tsvector)
returns int language plpgsql immutable parallel safe as $$
begin
    return (select coalesce(sum(cardinality(positions)), 0) from unnest(terms));
end
$$;

-- A term as a query that matches just it, whatever signs it holds.
create or replace function engine.term_query(term text)
returns tsquery language sql immutable parallel safe as $$
    select ('''' || replace(replace(term, '\', '\\'), '''', '''''') || '''')::tsquery
$$;

-- The distinct terms of a query, in the order of their first place, 64 at the most: bounded work for any query. A sign
-- that is asked for with the one beside it is not asked for by itself as well.
create or replace function engine.query_terms(query text)
returns text[] language sql immutable parallel safe as $$
    select coalesce(array_agg(lexeme order by first_place, lexeme), '{}')
    from (
        select t.lexeme, t.positions[1] as first_place
        from (select engine.tokenise(left(query, 10000)) as terms offset 0) as tokenised
        cross join lateral unnest(tokenised.terms) as t
        where not (
            length(t.lexeme) = 1 and t.lexeme ~ ('[' || engine.cjk_signs() || ']') and exists (
                select from unnest(tsvector_to_array(tokenised.terms)) as pair
                where length(pair) = 2 and strpos(pair, t.lexeme) > 0
            )
        )
        order by first_place, t.lexeme
        limit 64
    ) as first_terms
$$;
