-- Who may administer an org, and how people, agents and places are named in its administration.

-- The org that an administrative call is about. caller null is the system itself (the service key, from the CLI): the
-- request then names the org by its slug, or leaves it out where there is only one. Everybody else must manage their
-- org.
create or replace function engine.administered_org(caller jsonb, request jsonb)
returns uuid language plpgsql as $$
declare
    c engine.caller;
    org uuid;
begin
    if caller is not null then
        c := engine.enter(caller);
        perform engine.demand_manager(c);
        return c.org_id;
    end if;
    if request ->> 'org' is not null then
        select o.id into org from almagest.orgs as o where o.slug = request ->> 'org' and not o.is_system;
    elsif (select count(*) from almagest.orgs as o where not o.is_system) = 1 then
        select o.id into org from almagest.orgs as o where not o.is_system;
    else
        perform engine.problem(422, 'org_missing', case
            when exists (select from almagest.orgs as o where not o.is_system) then 'There is more than one org: say which (--org SLUG).'
            else 'There is no org yet: make one (almagest org create).'
        end);
    end if;
    if org is null then
        perform engine.problem(404, 'unknown_org', 'There is no such org.');
    end if;
    return org;
end
$$;

-- Owners are made and unmade by owners, and by the system (caller null); 403 forbidden.
create or replace function engine.demand_owner(caller jsonb)
returns void language plpgsql as $$
begin
    if caller is not null and (engine.resolve_caller(caller)).role <> 'owner' then
        perform engine.problem(403, 'forbidden', 'Only an owner may do this.');
    end if;
end
$$;

-- The key of a person opens that person's private items, so it is made by the person, or by the system (caller null);
-- 403 forbidden.
create or replace function engine.demand_own_key(caller jsonb, member uuid)
returns void language plpgsql as $$
begin
    if caller is not null and member is not null
        and member is distinct from (engine.resolve_caller(caller)).user_id
    then
        perform engine.problem(403, 'forbidden', 'Nobody makes a key for another person.');
    end if;
end
$$;

-- A member by id or e-mail; 404 unknown_member. Null stays null.
create or replace function engine.member_id(org uuid, member text)
returns uuid language plpgsql stable as $$
declare
    found_id uuid;
begin
    select m.user_id into found_id from almagest.members as m
    where m.org_id = org and (m.user_id::text = lower(member) or lower(m.email) = lower(member));
    if member is not null and found_id is null then
        perform engine.problem(404, 'unknown_member', 'There is no such member.');
    end if;
    return found_id;
end
$$;

-- An agent by id or slug; 404 unknown_agent. Null stays null.
create or replace function engine.agent_id(org uuid, agent text)
returns uuid language plpgsql stable as $$
declare
    found_id uuid;
begin
    select a.id into found_id from almagest.agents as a
    where a.org_id = org and (a.id::text = lower(agent) or a.slug = agent);
    if agent is not null and found_id is null then
        perform engine.problem(404, 'unknown_agent', 'There is no such agent.');
    end if;
    return found_id;
end
$$;

-- A client by id or slug; 404 unknown_client. Null stays null.
create or replace function engine.client_id(org uuid, client text)
returns uuid language plpgsql stable as $$
declare
    found_id uuid;
begin
    select k.id into found_id from almagest.clients as k
    where k.org_id = org and (k.id::text = lower(client) or k.slug = client);
    if client is not null and found_id is null then
        perform engine.problem(404, 'unknown_client', 'There is no such client.');
    end if;
    return found_id;
end
$$;

-- A deal by id or slug; 404 unknown_deal. Null stays null.
create or replace function engine.deal_id(org uuid, deal text)
returns uuid language plpgsql stable as $$
declare
    found_id uuid;
begin
    select d.id into found_id from almagest.deals as d
    where d.org_id = org and (d.id::text = lower(deal) or d.slug = deal);
    if deal is not null and found_id is null then
        perform engine.problem(404, 'unknown_deal', 'There is no such deal.');
    end if;
    return found_id;
end
$$;

-- 409 last_owner where an org would be left without an owner.
create or replace function engine.demand_another_owner(org uuid, member uuid)
returns void language plpgsql as $$
begin
    -- one change of owners at a time, or two owners could demote each other
    perform 1 from almagest.orgs as o where o.id = org for update;
    if (select m.role from almagest.members as m where m.org_id = org and m.user_id = member) = 'owner'
        and not exists (
            select from almagest.members as m where m.org_id = org and m.user_id <> member and m.role = 'owner'
        )
    then
        perform engine.problem(409, 'last_owner', 'An org keeps at least one owner.');
    end if;
end
$$;

-- Administrative inserts share their mistakes: a slug or e-mail in use is a 409, a malformed one a 422.
create or replace function engine.demand_slug(slug text)
returns void language plpgsql as $$
begin
    if slug is null or slug !~ '^[a-z0-9][a-z0-9_-]{0,62}$' then
        perform engine.problem(
            422, 'invalid_slug', 'A slug has 1 to 63 lower case letters, digits, - or _, and starts with a letter or digit.'
        );
    end if;
end
$$;
