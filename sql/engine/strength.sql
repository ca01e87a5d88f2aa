-- How far an item is to be trusted, 0.05..1: what it started with, never below the floor of its type or of evergreen.
create or replace function engine.strength(starting real, type_floor real, evergreen boolean)
returns float8 language sql immutable parallel safe as $$
    select least(1, greatest(0.05, starting, type_floor, case when evergreen then 0.5 end))::float8
$$;

-- The types of an org: the built-in ones, each replaced by the org's own of the same name, and what the org added.
create or replace function engine.item_types(org uuid)
returns setof almagest.item_types language sql stable as $$
    select distinct on (t.name) t.*
    from almagest.item_types as t
    where t.org_id = org or t.org_id is null
    order by t.name, t.org_id nulls last
$$;
