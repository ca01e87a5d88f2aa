-- The messages around an item of a conversation: the second step after a search that found it.
--   request  {id, reach: 0..5}
--   returns  {before: [{id, kind, type, title, content, source_ref, metadata, tags, agent_name, conversation,
--            created_at}], after: [the same]}, both in the order of the conversation: of the items that share its scope
--            and its state; empty for an item of no conversation
--   errors   404 not_found
create or replace function api.get_neighbours(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    c engine.caller := engine.enter(caller);
    neighbours jsonb := engine.read_neighbours(
        c, (request ->> 'id')::uuid, greatest(0, least(5, coalesce((request ->> 'reach')::int, 2)))
    );
begin
    if neighbours is null then
        perform engine.problem(404, 'not_found', 'There is no such item.');
    end if;
    return neighbours;
end
$$;
