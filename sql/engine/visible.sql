-- The visibility predicate, written once. A plain SQL expression, so that the planner inlines it and uses the indexes
-- on its columns. Null scopes mean shared; every comparison with a caller's missing part is null and so hides the row.
--   agent_ids  of an agent-scoped item: the agents it is assigned to
-- States are the query's own matter (archive, audit), not the caller's; engine.readable has those that hide an item.
create or replace function engine.visible(
    c engine.caller, org_id uuid, user_id uuid, client_id uuid, deal_id uuid, agent_ids uuid[]
)
returns boolean language sql immutable parallel safe as $$
    select org_id = (c).org_id
        and (user_id is null or user_id = (c).user_id)
        and (client_id is null or (c).manages or client_id = any((c).client_ids))
        and (deal_id is null or (c).manages or deal_id = any((c).deal_ids))
        and (agent_ids is null or (c).manages or (c).agent_id = any(agent_ids))
$$;

-- Whether a caller may read an item: visible, not erased, and, while it is provisional, theirs to review.
create or replace function engine.readable(c engine.caller, i almagest.items)
returns boolean language sql immutable parallel safe as $$
    select engine.visible(c, (i).org_id, (i).user_id, (i).client_id, (i).deal_id, (i).agent_ids)
        and (i).state <> 'erased'
        and ((i).state <> 'provisional' or (c).manages or (i).user_id = (c).user_id)
$$;
