create or replace function engine.substring_leg(
    c engine.caller, asked text, states text[], within bigint[], pool int
)
returns table (chunk_id bigint, score float8) language plpgsql stable as $$
begin
    return query
    select k.id, 1::float8
    from almagest.chunks as k
    join almagest.items as i on i.id = k.item_id
    where nullif(asked, '') is not null and strpos(lower(k.text), lower(asked)) > 0
        and engine.visible(c, i.org_id, i.user_id, i.client_id, i.deal_id, i.agent_ids) and i.state = any(states)
    limit pool;
end
$$;
