-- Who asks. The edge has authenticated the credential; here the caller is checked against the org as it is now, so that
-- a removed member or agent loses access with the next call, and scopes are resolved once for the whole call.

-- caller: {"org": uuid, "user": uuid?, "agent": uuid?, "role": text, "key": uuid?}.
-- Fails closed (403 caller_unknown) when the org, the membership or the agent is not there.
create or replace function engine.resolve_caller(caller jsonb)
returns engine.caller language plpgsql stable as $$
declare
    c engine.caller;
    member_role text;
begin
    c.org_id := (caller ->> 'org')::uuid;
    c.user_id := (caller ->> 'user')::uuid;
    c.agent_id := (caller ->> 'agent')::uuid;
    c.key_id := (caller ->> 'key')::uuid;
    c.role := caller ->> 'role';

    select m.role into member_role
    from almagest.members as m where m.org_id = c.org_id and m.user_id = c.user_id;
    if c.org_id is null
        or num_nonnulls(c.user_id, c.agent_id) = 0
        or (c.user_id is not null and member_role is null)
        or (c.agent_id is not null and not exists (
            select from almagest.agents as a where a.org_id = c.org_id and a.id = c.agent_id
        ))
    then
        perform engine.problem(403, 'caller_unknown', 'This credential belongs to nobody in the org any more.');
    end if;

    -- An agent never manages, whoever's key it carries; a person has the role they have now.
    c.role := case when c.agent_id is not null then 'agent' else member_role end;
    c.manages := c.role in ('owner', 'admin');

    -- A client's scope covers all its deals; a deal's scope covers what is known of its client, not the other deals.
    select
        coalesce(array_agg(distinct coalesce(s.client_id, d.client_id)), '{}'),
        coalesce(array_agg(distinct coalesce(s.deal_id, client_deal.id))
            filter (where coalesce(s.deal_id, client_deal.id) is not null), '{}')
    into c.client_ids, c.deal_ids
    from almagest.member_scopes as s
    left join almagest.deals as d on d.id = s.deal_id
    left join almagest.deals as client_deal on client_deal.client_id = s.client_id
    where s.org_id = c.org_id and (s.user_id = c.user_id or s.agent_id = c.agent_id);
    return c;
end
$$;

-- Lets the request's id be seen by whoever runs the database, for this transaction only: as the application's name, in
-- pg_stat_activity and where the server's log tells it. The edge sends the id as a header; without one nothing changes.
create or replace function engine.note_request()
returns void language plpgsql as $$
declare
    id text := nullif(current_setting('request.headers', true), '')::jsonb ->> 'x-almagest-request-id';
begin
    if id is not null then
        perform set_config('application_name', 'almagest ' || id, true);
    end if;
end
$$;

-- Resolves the caller and tells row level security who it is, for this transaction only.
create or replace function engine.enter(caller jsonb)
returns engine.caller language plpgsql as $$
declare
    c engine.caller;
begin
    perform engine.note_request();
    c := engine.resolve_caller(caller);
    perform set_config('almagest.caller', to_jsonb(c)::text, true);
    return c;
end
$$;

-- Who row level security reads for; null, and so no rows, outside a call. (After a transaction that set it, the setting
-- reads as an empty string.)
create or replace function engine.current_caller()
returns engine.caller language sql stable as $$
    select jsonb_populate_record(null::engine.caller, nullif(current_setting('almagest.caller', true), '')::jsonb)
$$;

-- Demands a person who manages the org (owner or admin).
create or replace function engine.demand_manager(c engine.caller)
returns void language plpgsql as $$
begin
    if not c.manages then
        perform engine.problem(403, 'forbidden', 'Only an owner or an admin may do this.');
    end if;
end
$$;
