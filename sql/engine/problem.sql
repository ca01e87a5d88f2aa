-- Raises a problem that the edge turns into application/problem+json.
--   status  HTTP status, 400..599
--   code    stable name that programs may depend on
--   title   one sentence for a person; no other tenant's name, and nothing that a caller sent: what is raised is in the
--           server's log. It stays on one line, whatever it repeats: PostgREST puts it into its status line
--   extra   further members of the problem
create or replace function engine.problem(status int, code text, title text, extra jsonb default '{}')
returns void language plpgsql as $$
begin
    raise exception using
        errcode = 'PT' || status, -- PostgREST answers with this status
        message = regexp_replace(title, '[[:cntrl:]]+', ' ', 'g'),
        detail = (jsonb_build_object('code', code) || extra)::text;
end
$$;

-- The same for one field of a request, which `errors` names as the edge does where it finds fault itself.
--   message  what the field must be, as after its name
create or replace function engine.field_problem(code text, field text, message text, title text)
returns void language plpgsql as $$
begin
    perform engine.problem(422, code, title, jsonb_build_object(
        'errors', jsonb_build_array(jsonb_build_object('field', field, 'message', message))
    ));
end
$$;
