-- Confirms that an item still holds: its decay starts anew, and confidence in it grows by a fifth of the doubt that is
-- left, to 0.95 at the most. Whoever sees an item may confirm it, since that changes nothing of what it says.
--   request  {id, idempotency}
--   returns  {id, validated_at, confidence, strength}
--   errors   404 not_found, 409 wrong_state (only what is active is confirmed), 409 idempotency_conflict
create or replace function api.validate_item(caller jsonb, request jsonb)
returns jsonb language plpgsql security definer set search_path = '' as $$
declare
    c engine.caller := engine.enter(caller);
    answer jsonb := engine.recall_answer(c, request);
    i almagest.items;
begin
    if answer is not null then
        return answer;
    end if;
    i := engine.lock_item(c, (request ->> 'id')::uuid);
    if i.state <> 'active' then
        perform engine.problem(409, 'wrong_state', format('An item that is %s cannot be validated.', i.state));
    end if;
    perform engine.validate_item(c, i);
    return engine.remember_answer(c, request, jsonb_build_object(
        'id', i.id,
        'validated_at', engine.utc(now()),
        'confidence', (select s.confidence from almagest.strength_signals as s where s.item_id = i.id),
        'strength', round(engine.item_strength(i)::numeric, 4)
    ));
end
$$;
