-- What lets a search stay quick: words indexed together with the org that wrote them, attributes apart from the text.
-- The index is built inside the migration's transaction, and writes wait meanwhile (seconds for a million chunks). The
-- column that goes is read by the engine's own functions alone, which change in the same transaction.
-- squawk-ignore-file require-concurrent-index-deletion, require-concurrent-index-creation, ban-drop-column

-- The terms of a row with its org before each: what the word index holds. A word that is rare in one org and common in
-- all the others is as quick to find as in a database of that org's own. The index depends on what this returns, so it
-- is never replaced. Costly on purpose: the planner shall look words up, not compute this for each row.
create function almagest.org_terms(org_id uuid, terms tsvector)
returns tsvector language plpgsql immutable strict parallel safe cost 10000 as $$
declare
    org constant text := left(org_id::text, 8) || ':';
begin
    return array_to_tsvector(array(select org || term from unnest(tsvector_to_array(terms)) as term));
end
$$;
revoke all on function almagest.org_terms(uuid, tsvector) from public;

drop index almagest.lexical_terms;
-- Without a list of pending rows, which every search would have to read through.
create index lexical_terms on almagest.lexical using gin (almagest.org_terms(org_id, terms)) with (fastupdate = off);
-- Terms stay in the row as they are, up to a page: compressed, they would be unpacked once for each term of a query.
alter table almagest.lexical set (toast_tuple_target = 8160);
-- What a search would otherwise have to find out of the texts each time; made with the terms.
alter table almagest.lexical
add column says_when boolean not null default false,    -- whether the text tells a time
add column only_asks boolean not null default false,    -- whether it does nothing but ask
add column text_hash bigint;                            -- equal for equal texts
comment on column almagest.lexical.terms is 'Of the text with weight A, of title, headings and tags with weight B.';

-- What was asked belongs to the search, not to each item that it surfaced.
alter table almagest.retrievals add column query_vector @extschema:vector@.halfvec(384);
update almagest.retrievals as r
set query_vector = a.query_vector
from almagest.activations as a
where a.retrieval_id = r.id and a.created_at = r.created_at and a.rank = 1 and a.query_vector is not null;
alter table almagest.activations drop column query_vector;

alter type engine.query_terms add attribute identifiers boolean[]; -- which terms are identifiers
alter type engine.query_terms add attribute all_idf float8; -- sum of all terms that were asked for, held or not

alter type engine.candidate add attribute rank int;             -- by score, among those without a cut
alter type engine.candidate add attribute place int;            -- in the answer and after it, once it is diversified
