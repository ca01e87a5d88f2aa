-- How far indexing is, of the items that the caller may see.
--   request  {}
--   returns  {pending, indexing, failed}; pending counts what is found by its words and waits for its vectors
create or replace function api.index_status(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    c engine.caller := engine.enter(caller);
begin
    return (
        select jsonb_build_object(
            'pending', count(*) filter (where i.index_status in ('pending', 'text_ready')),
            'indexing', count(*) filter (where i.index_status = 'indexing'),
            'failed', count(*) filter (where i.index_status = 'failed')
        )
        from almagest.items as i
        where i.index_status <> 'search_ready'
            and engine.visible(c, i.org_id, i.user_id, i.client_id, i.deal_id, i.agent_ids)
    );
end
$$;
