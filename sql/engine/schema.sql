-- Which code this database serves.

-- The code of which migration still works with this schema: the number of the last migration that it knew. Raised where
-- a change would break what was deployed before it, which takes two releases: first code that does without, then the
-- change. So a function goes on while the database is migrated under it.
create or replace function engine.serves_since()
returns int language sql immutable parallel safe as $$ select 9 $$;
