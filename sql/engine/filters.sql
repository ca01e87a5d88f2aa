-- The items of the caller's org that pass the filters of a search. Filters that are absent let everything through; all
-- that are given must hold. Names are those of the request:
--   kind, type, origin, project, client, deal, agent_name   any of a list
--   tags (all of), tags_any, source_ref, title (part of it, case ignored), conversation
--   created_after, created_before, occurred_after, occurred_before, priority_min
create or replace function engine.matching_items(c engine.caller, filters jsonb)
returns setof uuid language sql stable as $$
    select i.id
    from almagest.items as i
    where engine.visible(c, i.org_id, i.user_id, i.client_id, i.deal_id, i.agent_ids)
        and (not filters ? 'kind' or filters -> 'kind' ? i.kind)
        and (not filters ? 'type' or filters -> 'type' ? i.type)
        and (not filters ? 'origin' or filters -> 'origin' ? i.origin)
        and (not filters ? 'agent_name' or filters -> 'agent_name' ? i.agent_name)
        and (not filters ? 'source_ref' or filters ->> 'source_ref' = i.source_ref)
        and (not filters ? 'conversation' or filters ->> 'conversation' = i.conversation_id)
        and (not filters ? 'title' or position(lower(filters ->> 'title') in lower(i.title)) > 0)
        and (not filters ? 'priority_min' or i.priority >= (filters ->> 'priority_min')::real)
        and (not filters ? 'created_after' or i.created_at >= (filters ->> 'created_after')::timestamptz)
        and (not filters ? 'created_before' or i.created_at < (filters ->> 'created_before')::timestamptz)
        and (not filters ? 'occurred_after' or i.occurred_at >= (filters ->> 'occurred_after')::timestamptz)
        and (not filters ? 'occurred_before' or i.occurred_at < (filters ->> 'occurred_before')::timestamptz)
        and (not filters ? 'project' or exists (
            select from almagest.projects as p where p.id = i.project_id and filters -> 'project' ? p.slug
        ))
        and (not filters ? 'client' or exists (
            select from almagest.clients as k where k.id = i.client_id and filters -> 'client' ? k.slug
        ))
        and (not filters ? 'deal' or exists (
            select from almagest.deals as d where d.id = i.deal_id and filters -> 'deal' ? d.slug
        ))
        and (not filters ? 'tags_any' or i.id in (
            select t.item_id from almagest.item_tags as t
            where t.org_id = (c).org_id and t.tag = any(array(select jsonb_array_elements_text(filters -> 'tags_any')))
        ))
        and (not filters ? 'tags' or filters -> 'tags' = '[]' or i.id in (
            select t.item_id from almagest.item_tags as t
            where t.org_id = (c).org_id and t.tag = any(array(select jsonb_array_elements_text(filters -> 'tags')))
            group by t.item_id
            having count(distinct t.tag) = (
                select count(distinct wanted) from jsonb_array_elements_text(filters -> 'tags') as wanted
            )
        ))
$$;

-- The chunks of the items that pass the filters, as of a time or now.
create or replace function engine.matching_chunks(c engine.caller, states text[], filters jsonb, as_of timestamptz)
returns bigint[] language plpgsql stable as $$
begin
    return array(
        select k.id from almagest.chunks as k where k.item_id in (select engine.matching_items(c, filters))
    );
end
$$;
