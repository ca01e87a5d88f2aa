-- Edits an item: the version that the caller has read must still be the current one.
--   request  {id, version, changes: {title, content, type, importance, tags, metadata, occurred_at, source_ref,
--            agent_name, evergreen}, content_hash, chunks, model, idempotency}; content comes with content_hash and
--            chunks
--   returns  {id, version, index_status}
--   errors   404 not_found, 409 version_conflict, 409 duplicate, 409 idempotency_conflict, 422 unknown_type,
--            cannot_be_private, invalid_vector, 403 forbidden (canon, and what is evergreen for all, is for
--            owners and admins)
-- PostgREST sets the statement timeout for the whole transaction: a million characters take longer than a project's
-- usual 8 s.
create or replace function api.update_item(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' set statement_timeout = '25s' as $$
declare
    c engine.caller := engine.enter(caller);
    answer jsonb := engine.recall_answer(c, request);
    i almagest.items;
begin
    if answer is not null then
        return answer;
    end if;
    if request ->> 'model' is not null then
        perform engine.register_model(request ->> 'model');
    end if;
    i := engine.update_item(c, request);
    return engine.remember_answer(c, request, jsonb_build_object(
        'id', i.id, 'version', i.version, 'index_status', i.index_status
    ));
end
$$;
