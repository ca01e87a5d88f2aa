-- The second privacy layer: what almagest_reader may read, whatever the engine asks it for. It is stated on its own,
-- not through engine.visible, so that a fault in one layer is not a fault in both.

revoke all on all tables in schema almagest from almagest_reader;
grant select on
almagest.items, almagest.item_versions, almagest.item_tags, almagest.chunks, almagest.pins, almagest.strength_signals,
almagest.retrievals, almagest.projects, almagest.clients, almagest.deals, almagest.hub_feed, almagest.hub_marks
to almagest_reader;

drop policy if exists reader on almagest.items;
create policy reader on almagest.items for select to almagest_reader using (
    org_id = (select (engine.current_caller()).org_id)
    and coalesce(user_id = (select (engine.current_caller()).user_id), user_id is null)
    and case state when 'erased' then false
        when 'provisional' then (select (engine.current_caller()).manages) or user_id is not null
        else true
    end
    and case
        when (select (engine.current_caller()).manages) then true
        else
            (client_id is null or client_id in (select unnest((engine.current_caller()).client_ids)))
            and (deal_id is null or deal_id in (select unnest((engine.current_caller()).deal_ids)))
            and (scope <> 'agent' or exists (
                select from unnest(agent_ids) as assigned where assigned = (select (engine.current_caller()).agent_id)
            ))
    end
);

-- What belongs to an item is readable where the item is.
drop policy if exists reader on almagest.item_versions;
create policy reader on almagest.item_versions for select to almagest_reader
using (exists (select from almagest.items as i where i.id = item_id));

drop policy if exists reader on almagest.item_tags;
create policy reader on almagest.item_tags for select to almagest_reader
using (exists (select from almagest.items as i where i.id = item_id));

drop policy if exists reader on almagest.chunks;
create policy reader on almagest.chunks for select to almagest_reader
using (exists (select from almagest.items as i where i.id = item_id));

drop policy if exists reader on almagest.strength_signals;
create policy reader on almagest.strength_signals for select to almagest_reader
using (exists (select from almagest.items as i where i.id = item_id));

-- The names of what a readable item belongs to.
drop policy if exists reader on almagest.projects;
create policy reader on almagest.projects for select to almagest_reader
using (org_id = (select (engine.current_caller()).org_id));

drop policy if exists reader on almagest.clients;
create policy reader on almagest.clients for select to almagest_reader using (
    org_id = (select (engine.current_caller()).org_id)
    and case
        when (select (engine.current_caller()).manages) then true
        else id in (select unnest((engine.current_caller()).client_ids))
    end
);

drop policy if exists reader on almagest.deals;
create policy reader on almagest.deals for select to almagest_reader using (
    org_id = (select (engine.current_caller()).org_id)
    and case
        when (select (engine.current_caller()).manages) then true
        else id in (select unnest((engine.current_caller()).deal_ids))
    end
);

-- A person's own pins and the shared ones.
drop policy if exists reader on almagest.pins;
create policy reader on almagest.pins for select to almagest_reader using (
    org_id = (select (engine.current_caller()).org_id)
    and coalesce(user_id = (select (engine.current_caller()).user_id), user_id is null)
);

-- A trace holds what somebody asked: it is theirs alone.
drop policy if exists reader on almagest.retrievals;
create policy reader on almagest.retrievals for select to almagest_reader using (
    org_id = (select (engine.current_caller()).org_id)
    and user_id is not distinct from (select (engine.current_caller()).user_id)
    and agent_id is not distinct from (select (engine.current_caller()).agent_id)
);

-- What people are told: of the installation who manages an org, of an org everybody in it, of a person that person.
drop policy if exists reader on almagest.hub_feed;
create policy reader on almagest.hub_feed for select to almagest_reader using (
    (org_id is null and user_id is null and (select (engine.current_caller()).manages))
    or (
        org_id = (select (engine.current_caller()).org_id)
        and coalesce(user_id = (select (engine.current_caller()).user_id), user_id is null)
    )
);

-- Who has read or dismissed an entry is that person's own.
drop policy if exists reader on almagest.hub_marks;
create policy reader on almagest.hub_marks for select to almagest_reader using (
    user_id = (select (engine.current_caller()).user_id)
    and exists (select from almagest.hub_feed as f where f.id = entry_id)
);
