-- The same key and request give the same answer; the same key with another request is a 409. A second call that comes
-- while the first is still running waits for it.

-- Returns the stored answer, or null for a call that has to do the work and then engine.remember_answer.
create or replace function engine.recall_answer(c engine.caller, request jsonb)
returns jsonb language plpgsql as $$
declare
    wanted jsonb := request -> 'idempotency';
    who uuid := coalesce((c).key_id, (c).user_id, (c).agent_id);
    stored almagest.idempotency_keys;
begin
    if wanted ->> 'key' is null then
        return null;
    end if;
    insert into almagest.idempotency_keys (org_id, principal, key, request_hash)
    values ((c).org_id, who, wanted ->> 'key', wanted ->> 'request_hash')
    on conflict do nothing;
    if found then
        return null;
    end if;
    select k.* into stored from almagest.idempotency_keys as k
    where k.org_id = (c).org_id and k.principal = who and k.key = wanted ->> 'key';
    if stored.request_hash is distinct from wanted ->> 'request_hash' then
        perform engine.problem(
            409, 'idempotency_conflict', 'This Idempotency-Key was used before with another request.'
        );
    end if;
    return stored.response;
end
$$;

-- Stores the answer of the work that engine.recall_answer let through, and returns it.
create or replace function engine.remember_answer(c engine.caller, request jsonb, response jsonb)
returns jsonb language plpgsql as $$
begin
    update almagest.idempotency_keys as k set response = remember_answer.response
    where k.org_id = (c).org_id
        and k.principal = coalesce((c).key_id, (c).user_id, (c).agent_id)
        and k.key = request -> 'idempotency' ->> 'key';
    return response;
end
$$;
