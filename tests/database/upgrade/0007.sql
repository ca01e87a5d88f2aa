-- Rows as they were once migration 0007 had landed.
update almagest.retrievals
set query_vector = translate(array_fill(0.051, array[384])::text, '{}', '[]')::@extschema:vector@.halfvec
where id = '20000000-0000-0000-0000-000000000000';
update almagest.lexical
set terms = '''deploy'':1B,3A ''tuesday'':4A', length = 3, only_asks = false, says_when = true, text_hash = 1
where item_id = '10000000-0000-0000-0000-000000000000';
