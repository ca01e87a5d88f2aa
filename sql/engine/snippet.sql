-- Snippets: the part of a chunk that shows best why it was found, with the words of the query in it marked. A word is
-- marked when the tokeniser makes of it a term of the query. To tokenise each word would take too long, so one pattern
-- finds the words that could, and only these are looked at.

-- A pattern that matches, in folded text and whatever the case, each word that could give one of the terms, signs
-- aside: whole identifiers, and words that begin as a stem does, but for a last letter that English stems do not always
-- share with their words (ponies: poni, hoping: hope, ability: abl, dying: die). Null where there are no such terms.
--   inside  whether such a beginning may also stand inside a word, as in camelCase
create or replace function engine.mark_pattern(terms text[], inside boolean)
returns text language plpgsql immutable parallel safe as $$
declare
    term text;
    wholes text := '';
    beginnings text := '';
begin
    foreach term in array terms loop
        if octet_length(term) > length(term) and term ~ ('[' || engine.cjk_signs() || ']') then
            continue;
        elsif term ~ '[^[:alnum:]]' then
            wholes := wholes || '|(?<![[:alnum:]_])' || regexp_replace(term, '([^[:alnum:]])', '\\\1', 'g') || '(?![[:alnum:]_])';
        else
            beginnings := beginnings || '|' || case
                when term in ('die', 'lie', 'tie') then left(term, 1)
                when length(term) > 2 then regexp_replace(term, '(?<=.)[eiy]+$|(?<=b)l$', '')
                else term
            end;
        end if;
    end loop;
    return '(?i)' || nullif(substr(concat(
        wholes,
        case when inside then '|[[:alnum:]]*(?:' else '|\m(?:' end || nullif(substr(beginnings, 2), '') || ')[[:alnum:]]*'
    ), 2), '');
end
$$;

-- A text as the tokeniser looks at it: folded, and composed where it takes signs two by two.
create or replace function engine.folded_form(content text)
returns text language sql immutable parallel safe as $$
    select case when f ~ ('[' || engine.cjk_signs() || ']') then normalize(f, nfc) else f end
    from (select engine.fold(content) as f offset 0) as folded
$$;

-- A text in its folded form, in pieces that are of one length with what they were made of; a piece of another length is
-- a single sign, such as a ligature, or one with what belongs to it, such as a syllable written letter by letter.
create or replace function engine.folded_pieces(content text, out folded text[], out lengths int[])
language plpgsql immutable parallel safe as $$
declare
    whole text;
    piece text;
    strange text;
begin
    if octet_length(content) = length(content) then
        folded := array[content];
        lengths := array[length(content)];
        return;
    end if;
    whole := engine.folded_form(content);
    -- marks, letters of syllables and half-width signs are what others swallow
    if length(whole) = length(content) and content !~ '[\u0300-\u036f\u1100-\u11ff\u3099\u309a\uff61-\uffdc]' then
        folded := array[whole];
        lengths := array[length(content)];
        return;
    end if;
    select string_agg(signs.sign, '') into strange
    from (
        select distinct unnest(string_to_array(regexp_replace(content, '[\u0001-\u007f]+', '', 'g'), null)) as sign
    ) as signs
    where length(engine.folded_form(signs.sign)) <> 1;
    foreach piece in array string_to_array(regexp_replace(
        content,
        concat(
            '[\u1100-\u1112\uffa1-\uffbe][\u1161-\u1175\uffc2-\uffdc][\u11a8-\u11c2]?'
            '|[\u3040-\u30ff\uff66-\uff9d][\u3099\u309a\uff9e\uff9f]', '|[' || strange || ']'
        ),
        E'\u0001\\&\u0001', 'g'
    ), E'\u0001') loop
        folded := folded || engine.folded_form(piece);
        lengths := lengths || length(piece);
    end loop;
end
$$;

-- Whether an identifier that stands at a place of a text is a term of it, or a part of a path, an address or the like
-- (main.py of main.py:12). One that other signs put together with more is not: SID-48 of SID-48-B, v1.2 of v1.2.3.
--   content     folded, with spaces for what engine.without_cjk leaves out
--   place       before it, in characters
--   identifier  in lower case
create or replace function engine.stands_whole(content text, place int, identifier text)
returns boolean language plpgsql immutable parallel safe as $$
declare
    size int := length(identifier);
    run constant text := '[[:alnum:]_./:@+#$\\-]*';
begin
    if substr(content, place - 3, 4) !~ '(?:[[:alnum:]_][-./:@+#\\]{0,2}[-.+#]|--|[#$])$'
        and substr(content, place + size + 1, 4) !~ '^(?:[-.+#][-./:@+#\\]{0,2}[[:alnum:]_]|\+\+|#)'
    then
        return true;
    end if;
    return identifier in (
        select engine.identifiers(concat(
            substring(substr(content, greatest(place - 200, 0) + 1, least(place, 200)) from run || '$'),
            substr(content, place + 1, size),
            substring(substr(content, place + size + 1, 200) from '^' || run)
        ))
    );
end
$$;

-- Which of the terms a word is, in lower case and without signs: an English stem, or with a digit the word itself.
create or replace function engine.term_number(word text, terms text[])
returns int language plpgsql immutable parallel safe as $$
begin
    return array_position(
        terms, case when word ~ '[^[:alpha:]]' then word else (ts_lexize('pg_catalog.english_stem', word))[1] end
    );
end
$$;

-- The words and identifiers of a text that are among the terms: where they start and end, in characters from 0, and
-- which of the terms each is.
--   content  folded, with spaces for what engine.without_cjk leaves out
create or replace function engine.term_words(
    content text, terms text[], out starts int[], out ends int[], out numbers int[]
)
language plpgsql immutable parallel safe as $$
declare
    camel constant text := '[[:lower:]][[:upper:]]|[[:upper:]]{2}[[:lower:]]{2}';
    pattern text := engine.mark_pattern(terms, strpos(content, '_') > 0 or content ~ camel);
    words text[] := string_to_array(regexp_replace(content, pattern, E'\u0001\\&\u0001', 'g'), E'\u0001');
    word text;
    lowered text;
    part text;
    place int := 0;
    number int;
begin
    starts := '{}';
    ends := '{}';
    numbers := '{}';
    for n in 1..coalesce(cardinality(words), 0) loop
        word := words[n];
        if n % 2 = 1 then
            place := place + length(word);
            continue;
        end if;
        lowered := lower(word);
        if word ~ '[^[:alnum:]]' or (substr(word, 2) <> substr(lowered, 2) and word ~ camel) then
            number := array_position(terms, lowered);
            if number is null or not engine.stands_whole(content, place, lowered) then
                -- as the tokeniser takes it apart
                foreach part in array string_to_array(regexp_replace(regexp_replace(regexp_replace(
                    word, '([[:lower:]])([[:upper:]])', E'\\1\u0001\\2', 'g'
                ), '([[:upper:]])([[:upper:]][[:lower:]]{2})', E'\\1\u0001\\2', 'g'
                ), '([^[:alnum:]\u0001]+)', E'\u0001\\1\u0001', 'g'), E'\u0001') loop
                    number := engine.term_number(lower(part), terms);
                    if number is not null then
                        starts := starts || place;
                        ends := ends || place + length(part);
                        numbers := numbers || number;
                    end if;
                    place := place + length(part);
                end loop;
                continue;
            end if;
        else
            number := engine.term_number(lowered, terms);
        end if;
        if number is not null then
            starts := starts || place;
            ends := ends || place + length(word);
            numbers := numbers || number;
        end if;
        place := place + length(word);
    end loop;
end
$$;

-- The same for signs, which the tokeniser takes one by one and two by two.
--   content  in its folded form
create or replace function engine.term_signs(
    content text, terms text[], out starts int[], out ends int[], out numbers int[]
)
language plpgsql immutable parallel safe as $$
declare
    cjk constant text := '[' || engine.cjk_signs() || ']';
    signs text := (select string_agg(t, '') from unnest(terms) as t where octet_length(t) > length(t) and t ~ cjk);
    words text[] := string_to_array(regexp_replace(content, '[' || signs || ']+', E'\u0001\\&\u0001', 'g'), E'\u0001');
    place int := 0;
    size int;
    number int;
begin
    starts := '{}';
    ends := '{}';
    numbers := '{}';
    for n in 1..coalesce(cardinality(words), 0) loop
        size := length(words[n]);
        for i in 1..case when n % 2 = 0 then size else 0 end loop
            for width in 1..least(2, size - i + 1) loop
                number := array_position(terms, substr(words[n], i, width));
                if number is not null then
                    starts := starts || place + i - 1;
                    ends := ends || place + i - 1 + width;
                    numbers := numbers || number;
                end if;
            end loop;
        end loop;
        place := place + size;
    end loop;
end
$$;

-- The words of a text whose terms are among the given ones: where they start and end, in characters from 0, and which
-- of the terms each is.
create or replace function engine.marked_words(
    content text, terms text[], out starts int[], out ends int[], out numbers int[]
)
language plpgsql immutable parallel safe as $$
declare
    pieces record := engine.folded_pieces(translate(content, E'\u0001', ' '));
    folded text := array_to_string(pieces.folded, '');
    found record;
    signs record;
    piece int := 1;
    piece_place int := 0;   -- of the piece, in the folded text
    passed int := 0;        -- characters of the content before the piece
    last int;               -- the piece in which a word ends, likewise
    last_folded int;
    last_place int;
    rest int;               -- of the word in that piece
begin
    if octet_length(folded) = length(folded) then
        found := engine.term_words(folded, terms);
    else
        found := engine.term_words(regexp_replace(folded, '[' || engine.cjk_signs() || ']', ' ', 'g'), terms);
        signs := engine.term_signs(folded, terms);
        if found.starts = '{}' then
            found := signs;
        elsif signs.starts <> '{}' then
            select
                array_agg(f.start order by f.start) as starts, array_agg(f.finish order by f.start) as ends,
                array_agg(f.number order by f.start) as numbers
            into found
            from unnest(
                found.starts || signs.starts, found.ends || signs.ends, found.numbers || signs.numbers
            ) as f (start, finish, number);
        end if;
    end if;
    numbers := found.numbers;
    if cardinality(pieces.lengths) = 1 then
        starts := found.starts;
        ends := found.ends;
        return;
    end if;
    -- from places in the folded text to places in the content
    starts := '{}';
    ends := '{}';
    for n in 1..cardinality(found.starts) loop
        while found.starts[n] >= piece_place + length(pieces.folded[piece]) loop
            piece_place := piece_place + length(pieces.folded[piece]);
            passed := passed + pieces.lengths[piece];
            piece := piece + 1;
        end loop;
        starts := starts || passed + case
            when length(pieces.folded[piece]) = pieces.lengths[piece] then found.starts[n] - piece_place else 0
        end;
        -- the next may begin before this one ends, so the piece of its start is kept
        last := piece;
        last_folded := piece_place;
        last_place := passed;
        while found.ends[n] > last_folded + length(pieces.folded[last]) loop
            last_folded := last_folded + length(pieces.folded[last]);
            last_place := last_place + pieces.lengths[last];
            last := last + 1;
        end loop;
        rest := found.ends[n] - last_folded;
        last_place := last_place + case
            when length(pieces.folded[last]) = pieces.lengths[last] then rest else pieces.lengths[last]
        end;
        -- with the marks on the last letter
        while rest = length(pieces.folded[last]) and pieces.folded[last + 1] = '' loop
            last := last + 1;
            last_place := last_place + pieces.lengths[last];
            rest := 0;
        end loop;
        ends := ends || last_place;
    end loop;
end
$$;

-- Which of the words, of so many terms, to show: the first and the last of those, at most 400 characters apart, that
-- are of the most different terms, the most words of them; the earliest where several are.
create or replace function engine.best_words(
    starts int[], ends int[], numbers int[], terms int, out first_word int, out last_word int
)
language plpgsql immutable parallel safe as $$
declare
    counts int[] := array_fill(0, array[terms]);
    different int := 0;
    most int := 0;
    a int := 1;
begin
    for b in 1..cardinality(starts) loop
        if counts[numbers[b]] = 0 then
            different := different + 1;
        end if;
        counts[numbers[b]] := counts[numbers[b]] + 1;
        while ends[b] - starts[a] > 400 and a < b loop
            counts[numbers[a]] := counts[numbers[a]] - 1;
            if counts[numbers[a]] = 0 then
                different := different - 1;
            end if;
            a := a + 1;
        end loop;
        if different > most or (different = most and b - a > last_word - first_word) then
            most := different;
            first_word := a;
            last_word := b;
        end if;
    end loop;
end
$$;

-- content  of a chunk
-- terms    of the query, as engine.query_terms gives them
-- Returns the window of at most 400 characters, cut between words, that holds the most different terms, and marks:
-- [[start, end], …], the places of the query's words in it, in characters from 0, apart from one another and in order.
-- About 0.13 ms for 1200 characters of English and eight terms, on an idle core.
create or replace function engine.snippet(content text, terms text[], out snippet text, out marks jsonb)
language plpgsql immutable parallel safe as $$
declare
    size constant int := 400;
    words record := engine.marked_words(content, coalesce(terms, '{}'));
    shown record;
    first_place int := 0;   -- what must be in the window
    last_place int := 0;
    start int := 0;
    finish int := length(content);
    cut int;
    mark_end int := -1;
    literal text := '';
begin
    if finish > size then
        if words.starts <> '{}' then
            shown := engine.best_words(words.starts, words.ends, words.numbers, cardinality(terms));
            first_place := words.starts[shown.first_word];
            last_place := least(words.ends[shown.last_word], first_place + size);
        end if;
        -- as much before as after
        start := greatest(0, least(first_place - (size - (last_place - first_place)) / 2, finish - size));
        if start > 0 and substr(content, start, 1) !~ '\s' then
            cut := regexp_instr(substr(content, start + 1, first_place - start), '\s');
            start := start + cut;
        end if;
        if start + size < finish then
            finish := start + size;
            if substr(content, finish + 1, 1) !~ '\s' then
                cut := length(substring(substr(content, last_place + 1, finish - last_place) from '^.*\s'));
                finish := coalesce(last_place + cut, finish);
            end if;
        end if;
        snippet := substr(content, start + 1, finish - start);
        start := start + length(snippet) - length(ltrim(snippet, E' \t\n'));
        snippet := btrim(snippet, E' \t\n');
        finish := start + length(snippet);
    else
        snippet := content;
    end if;
    for n in 1..cardinality(words.starts) loop
        continue when words.starts[n] < start or words.ends[n] > finish;
        if words.starts[n] - start <= mark_end then
            mark_end := greatest(words.ends[n] - start, mark_end);
        else
            literal := literal || mark_end || '],[' || (words.starts[n] - start) || ',';
            mark_end := words.ends[n] - start;
        end if;
    end loop;
    -- begun with the end of a mark that is none
    marks := case when literal = '' then '[]' else '[' || substr(literal, 5) || mark_end || ']]' end;
end
$$;
