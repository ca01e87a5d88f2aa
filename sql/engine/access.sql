-- What has to be there so that the request path may do its work and nothing else, and what of it is not: rights,
-- policies and constraints. The lists stand here alone, and a test compares them with a new database. Those of indexes
-- are in indexes.sql.

-- Tables that almagest_reader reads, each by a policy `reader` for select; see row_security.sql.
create or replace function engine.reader_tables()
returns text[] language sql immutable parallel safe as $$
    select array[
        'chunks', 'clients', 'deals', 'hub_feed', 'hub_marks', 'item_tags', 'item_versions', 'items', 'pins',
        'projects', 'retrievals', 'strength_signals'
    ]
$$;

-- Functions of the engine that almagest_reader calls, or its policies do; see privileges.sql.
create or replace function engine.reader_calls()
returns text[] language sql immutable parallel safe as $$
    select array[
        'best_words', 'cjk_signs', 'current_caller', 'fold', 'folded_form', 'folded_pieces', 'hub_rank',
        'hub_visible', 'identifier_forms', 'identifiers', 'mark_pattern', 'marked_words', 'readable', 'snippet',
        'stands_whole', 'term_signs', 'term_number', 'term_words', 'visible', 'without_cjk'
    ]
$$;

-- Every constraint that the migrations make, by table; what is not null is not among them.
create or replace function engine.expected_constraints()
returns table (table_name text, name text) language sql immutable parallel safe as $$
    select t.table_name, unnest(string_to_array(t.names, ' '))
    from (
        values
        ('activations', 'activations_pkey activations_use_check'),
        (
            'agents',
            'agents_name_check agents_org_id_fkey agents_org_id_id_key agents_org_id_slug_key agents_pkey '
            'agents_slug_check'
        ),
        (
            'api_keys',
            'api_keys_check api_keys_daily_quota api_keys_key_hash_check api_keys_key_hash_key api_keys_name_check '
            'api_keys_org_id_agent_id_fkey api_keys_org_id_fkey api_keys_org_id_user_id_fkey api_keys_pkey '
            'api_keys_rate api_keys_role_check'
        ),
        ('audit_log', 'audit_log_pkey'),
        ('chunks', 'chunks_item_id_fkey chunks_pkey chunks_place'),
        (
            'clients',
            'clients_name_check clients_org_id_fkey clients_org_id_id_key clients_org_id_slug_key clients_pkey '
            'clients_slug_check'
        ),
        ('code_files', 'code_files_pkey'),
        (
            'deals',
            'deals_name_check deals_org_id_client_id_fkey deals_org_id_fkey deals_org_id_id_key deals_org_id_slug_key '
            'deals_pkey deals_slug_check'
        ),
        ('embedding_models', 'embedding_models_name_key embedding_models_pkey'),
        ('embeddings', 'embeddings_chunk_id_fkey embeddings_model_id_fkey embeddings_pkey'),
        ('facts', 'facts_item_id_fkey facts_pkey facts_status_check facts_superseded_by_fkey'),
        (
            'folders',
            'folders_name_check folders_org_id_fkey folders_org_id_id_key folders_org_id_parent_id_fkey '
            'folders_org_id_parent_id_name_key folders_pkey'
        ),
        ('health_checks', 'health_checks_pkey health_checks_run_id_fkey health_checks_status_check'),
        (
            'health_runs',
            'health_runs_pkey health_runs_remediated_by_fkey health_runs_run_id_fkey health_runs_status_check'
        ),
        ('hub_feed', 'hub_feed_check hub_feed_org_id_fkey hub_feed_pkey hub_feed_severity_check hub_feed_tries_check'),
        ('hub_marks', 'hub_marks_entry_id_fkey hub_marks_pkey'),
        ('idempotency_keys', 'idempotency_keys_key_check idempotency_keys_org_id_fkey idempotency_keys_pkey'),
        ('item_agents', 'item_agents_org_id_agent_id_fkey item_agents_org_id_item_id_fkey item_agents_pkey'),
        (
            'item_tags',
            'item_tags_confidence_check item_tags_item_id_fkey item_tags_pkey item_tags_source_check '
            'item_tags_tag_check'
        ),
        (
            'item_types',
            'item_types_name_check item_types_org_id_fkey item_types_org_id_name_key '
            'item_types_starting_strength_check item_types_strength_floor_check'
        ),
        ('item_versions', 'item_versions_item_id_fkey item_versions_pkey'),
        (
            'items',
            'items_check items_check1 items_index_status_check items_kind_check items_org_id_client_id_fkey '
            'items_org_id_deal_id_fkey items_org_id_fkey items_org_id_folder_id_fkey items_org_id_id_key '
            'items_org_id_project_id_fkey items_origin_check items_pkey items_priority_check items_scope_check '
            'items_state_check items_tier_check'
        ),
        (
            'job_runs',
            'job_runs_attempts_check job_runs_job_check job_runs_job_scheduled_for_key job_runs_pkey '
            'job_runs_state_check'
        ),
        ('job_steps', 'job_steps_attempts_check job_steps_pkey job_steps_run_id_fkey job_steps_state_check'),
        ('lexical', 'lexical_chunk_id_fkey lexical_pkey'),
        (
            'member_scopes',
            'member_scopes_check member_scopes_check1 member_scopes_org_id_agent_id_fkey '
            'member_scopes_org_id_client_id_fkey member_scopes_org_id_deal_id_fkey member_scopes_org_id_fkey '
            'member_scopes_org_id_user_id_agent_id_client_id_deal_id_key member_scopes_org_id_user_id_fkey '
            'member_scopes_pkey'
        ),
        ('members', 'members_org_id_fkey members_pkey members_role_check'),
        ('migrations', 'migrations_pkey'),
        ('orgs', 'orgs_name_check orgs_pkey orgs_slug_check orgs_slug_key'),
        (
            'partition_statistics',
            'partition_statistics_org_id_fkey partition_statistics_org_id_user_id_client_id_deal_id_agent_key'
        ),
        ('pins', 'pins_org_id_item_id_fkey pins_org_id_user_id_item_id_key pins_pkey'),
        ('policies', 'policies_name_check policies_org_id_fkey policies_org_id_name_key policies_pkey'),
        (
            'projects',
            'projects_name_check projects_org_id_fkey projects_org_id_id_key projects_org_id_slug_key projects_pkey '
            'projects_slug_check'
        ),
        (
            'remediations',
            'remediations_attempt_check remediations_health_run_id_fkey remediations_pkey '
            'remediations_run_id_check_name_action_key remediations_run_id_fkey remediations_state_check'
        ),
        (
            'retention',
            'retention_check retention_idempotency_days_check retention_org_id_fkey retention_org_id_key '
            'retention_trace_days_check'
        ),
        ('retrievals', 'retrievals_mode_check retrievals_pkey retrievals_purpose_check'),
        ('search_profiles', 'search_profiles_name_check search_profiles_org_id_fkey search_profiles_org_id_name_key'),
        (
            'strength_signals',
            'strength_signals_centrality_check strength_signals_confidence_check strength_signals_diversity_check '
            'strength_signals_frequency_check strength_signals_item_id_fkey strength_signals_pkey '
            'strength_signals_recency_check strength_signals_source_trust_check '
            'strength_signals_starting_strength_check'
        ),
        (
            'term_statistics',
            'term_statistics_org_id_fkey term_statistics_org_id_term_user_id_client_id_deal_id_agent_key'
        ),
        ('usage', 'usage_org_id_fkey usage_pkey usage_requests_check'),
        (
            'variables',
            'variables_name_check variables_org_id_client_id_deal_id_name_key variables_org_id_client_id_fkey '
            'variables_org_id_deal_id_fkey variables_org_id_fkey variables_pkey'
        )
    ) as t (table_name, names)
$$;

-- Roles that may not do what they have to, and policies and constraints that are not as they were made.
--   uncallable           service_role may not call a function of the API
--   uncallable_owner     who asks may not call a function of the engine or of the API
--   uncallable_reader    almagest_reader may not call a function that it reads with
--   unreadable_reader    almagest_reader may not read a table that it reads
--   unbound_reader       no policy binds almagest_reader
--   policy_missing, policy_changed, policy_unexpected
--   constraint_missing
create or replace function engine.access_faults()
returns table (name text, fault text) language sql stable set search_path = '' as $$
    select p.oid::regprocedure::text, 'uncallable'
    from pg_catalog.pg_proc as p
    where p.pronamespace = 'api'::regnamespace
        and not (
            has_function_privilege('service_role', p.oid, 'execute')
            and has_schema_privilege('service_role', 'api', 'usage')
        )
    union all
    select p.oid::regprocedure::text, 'uncallable_owner'
    from pg_catalog.pg_proc as p
    where p.pronamespace in ('api'::regnamespace, 'engine'::regnamespace)
        and not has_function_privilege(p.oid, 'execute')
    union all
    select p.oid::regprocedure::text, 'uncallable_reader'
    from pg_catalog.pg_proc as p
    where p.pronamespace = 'engine'::regnamespace and p.proname = any(engine.reader_calls())
        and not (
            has_function_privilege('almagest_reader', p.oid, 'execute')
            and has_schema_privilege('almagest_reader', 'engine', 'usage')
        )
    union all
    select t, 'unreadable_reader'
    from unnest(engine.reader_tables()) as t
    where to_regclass('almagest.' || t) is not null
        and not (
            has_table_privilege('almagest_reader', 'almagest.' || t, 'select')
            and has_schema_privilege('almagest_reader', 'almagest', 'usage')
        )
    union all
    select r.rolname, 'unbound_reader'
    from pg_catalog.pg_roles as r
    where r.rolname = 'almagest_reader' and (r.rolsuper or r.rolbypassrls)
    union all
    select 'reader of ' || t, 'policy_missing'
    from unnest(engine.reader_tables()) as t
    where to_regclass('almagest.' || t) is not null
        and not exists (
            select from pg_catalog.pg_policy as p
            where p.polrelid = to_regclass('almagest.' || t) and p.polname = 'reader'
        )
    union all
    select
        p.polname || ' of ' || c.relname,
        case p.polname when 'reader' then 'policy_changed' else 'policy_unexpected' end
    from pg_catalog.pg_policy as p
    join pg_catalog.pg_class as c on c.oid = p.polrelid and c.relnamespace = 'almagest'::regnamespace
    where p.polname <> 'reader' or not c.relname = any(engine.reader_tables()) or p.polcmd <> 'r' or not p.polpermissive
        or p.polroles <> array['almagest_reader'::regrole]::oid[] or p.polqual is null
    union all
    select e.name || ' of ' || e.table_name, 'constraint_missing'
    from engine.expected_constraints() as e
    where to_regclass('almagest.' || e.table_name) is not null
        and not exists (
            select from pg_catalog.pg_constraint as k
            where k.conrelid = to_regclass('almagest.' || e.table_name) and k.conname = e.name
        )
    order by 2, 1
$$;
