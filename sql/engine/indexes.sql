-- Which indexes there have to be, and which of them are missing, broken or other than they were made.

-- Every index that a migration makes by `create index`, as Postgres describes it with an empty search_path; those of
-- constraints go with their constraints. The one place that says so: a test compares it with a new database.
create or replace function engine.expected_indexes()
returns table (name text, definition text) language sql immutable parallel safe as $$
    values
    ('activations_age', 'CREATE INDEX activations_age ON ONLY almagest.activations USING brin (created_at)'),
    (
        'activations_item',
        'CREATE INDEX activations_item ON ONLY almagest.activations USING btree (item_id, created_at DESC)'
    ),
    ('api_keys_org', 'CREATE INDEX api_keys_org ON almagest.api_keys USING btree (org_id)'),
    ('audit_log_item', 'CREATE INDEX audit_log_item ON almagest.audit_log USING btree (item_id, id)'),
    ('audit_log_org', 'CREATE INDEX audit_log_org ON almagest.audit_log USING btree (org_id, id)'),
    (
        'audit_log_states',
        'CREATE INDEX audit_log_states ON almagest.audit_log USING btree (org_id, item_id, id) WHERE (action = ANY'
        ' (ARRAY[''archived''::text, ''restored''::text]))'
    ),
    ('deals_client', 'CREATE INDEX deals_client ON almagest.deals USING btree (client_id)'),
    ('embeddings_item', 'CREATE INDEX embeddings_item ON almagest.embeddings USING btree (item_id)'),
    ('embeddings_org', 'CREATE INDEX embeddings_org ON almagest.embeddings USING btree (org_id, user_id)'),
    (
        'embeddings_vector_1',
        'CREATE INDEX embeddings_vector_1 ON almagest.embeddings USING hnsw (vector '
        '@extschema:vector@.halfvec_cosine_ops) WITH (m=''24'', ef_construction=''128'') WHERE (model_id = 1)'
    ),
    (
        'facts_current',
        'CREATE UNIQUE INDEX facts_current ON almagest.facts USING btree (org_id, lower(subject), lower(relation),'
        ' user_id, client_id, deal_id, agent_ids) NULLS NOT DISTINCT WHERE (status = ''active''::text)'
    ),
    ('health_checks_name', 'CREATE INDEX health_checks_name ON almagest.health_checks USING btree (name, checked_at)'),
    (
        'health_runs_remediated',
        'CREATE INDEX health_runs_remediated ON almagest.health_runs USING btree (remediated_by)'
    ),
    (
        'health_runs_untried',
        'CREATE INDEX health_runs_untried ON almagest.health_runs USING btree (checked_at) WHERE ((status <> '
        '''ok''::text) AND (remediated_by IS NULL))'
    ),
    (
        'hub_feed_open',
        'CREATE UNIQUE INDEX hub_feed_open ON almagest.hub_feed USING btree (key, org_id, user_id) NULLS NOT '
        'DISTINCT WHERE (closed_at IS NULL)'
    ),
    ('hub_feed_org', 'CREATE INDEX hub_feed_org ON almagest.hub_feed USING btree (org_id, updated_at)'),
    (
        'idempotency_keys_age',
        'CREATE INDEX idempotency_keys_age ON almagest.idempotency_keys USING btree (created_at)'
    ),
    ('item_agents_agent', 'CREATE INDEX item_agents_agent ON almagest.item_agents USING btree (agent_id)'),
    ('item_tags_tag', 'CREATE INDEX item_tags_tag ON almagest.item_tags USING btree (org_id, tag)'),
    (
        'items_client',
        'CREATE INDEX items_client ON almagest.items USING btree (client_id) WHERE (client_id IS NOT NULL)'
    ),
    (
        'items_conversation',
        'CREATE INDEX items_conversation ON almagest.items USING btree (org_id, conversation_id, '
        'conversation_position) WHERE (conversation_id IS NOT NULL)'
    ),
    ('items_created', 'CREATE INDEX items_created ON almagest.items USING btree (org_id, created_at)'),
    ('items_deal', 'CREATE INDEX items_deal ON almagest.items USING btree (deal_id) WHERE (deal_id IS NOT NULL)'),
    (
        'items_duplicate',
        'CREATE UNIQUE INDEX items_duplicate ON almagest.items USING btree (org_id, content_hash, user_id, kind, '
        'project_id, client_id, deal_id, scope, agent_ids, conversation_id, conversation_position, source_ref, '
        '((state = ''provisional''::text))) NULLS NOT DISTINCT WHERE ((state = ANY (ARRAY[''active''::text, '
        '''provisional''::text, ''archived''::text])) AND (content_hash IS NOT NULL))'
    ),
    (
        'items_external',
        'CREATE UNIQUE INDEX items_external ON almagest.items USING btree (connection_id, external_id)'
    ),
    (
        'items_folder',
        'CREATE INDEX items_folder ON almagest.items USING btree (folder_id) WHERE (folder_id IS NOT NULL)'
    ),
    ('items_metadata', 'CREATE INDEX items_metadata ON almagest.items USING gin (metadata jsonb_path_ops)'),
    (
        'items_occurred',
        'CREATE INDEX items_occurred ON almagest.items USING btree (org_id, occurred_at) WHERE (occurred_at IS NOT'
        ' NULL)'
    ),
    (
        'items_project',
        'CREATE INDEX items_project ON almagest.items USING btree (project_id) WHERE (project_id IS NOT NULL)'
    ),
    (
        'items_queue',
        'CREATE INDEX items_queue ON almagest.items USING btree (index_after) WHERE (index_status <> '
        '''search_ready''::text)'
    ),
    ('items_recent', 'CREATE INDEX items_recent ON almagest.items USING btree (org_id, updated_at DESC)'),
    (
        'items_scope',
        'CREATE INDEX items_scope ON almagest.items USING btree (org_id, scope, updated_at DESC) WHERE (scope <> '
        '''library''::text)'
    ),
    (
        'items_source',
        'CREATE INDEX items_source ON almagest.items USING btree (org_id, source_ref) WHERE (source_ref IS NOT '
        'NULL)'
    ),
    ('items_type', 'CREATE INDEX items_type ON almagest.items USING btree (org_id, type)'),
    ('job_runs_age', 'CREATE INDEX job_runs_age ON almagest.job_runs USING btree (started_at)'),
    (
        'job_runs_running',
        'CREATE INDEX job_runs_running ON almagest.job_runs USING btree (job) WHERE (state = ''running''::text)'
    ),
    ('lexical_item', 'CREATE INDEX lexical_item ON almagest.lexical USING btree (item_id)'),
    ('lexical_org', 'CREATE INDEX lexical_org ON almagest.lexical USING btree (org_id, user_id)'),
    ('lexical_sequence', 'CREATE INDEX lexical_sequence ON almagest.lexical USING btree (sequence, place, chunk_id)'),
    (
        'lexical_terms',
        'CREATE INDEX lexical_terms ON almagest.lexical USING gin (almagest.org_terms(org_id, terms)) WITH '
        '(fastupdate=off)'
    ),
    (
        'member_scopes_agent',
        'CREATE INDEX member_scopes_agent ON almagest.member_scopes USING btree (org_id, agent_id)'
    ),
    ('members_email', 'CREATE UNIQUE INDEX members_email ON almagest.members USING btree (org_id, lower(email))'),
    ('members_user', 'CREATE INDEX members_user ON almagest.members USING btree (user_id)'),
    ('orgs_system', 'CREATE UNIQUE INDEX orgs_system ON almagest.orgs USING btree (is_system) WHERE is_system'),
    ('pins_item', 'CREATE INDEX pins_item ON almagest.pins USING btree (item_id)'),
    ('remediations_check', 'CREATE INDEX remediations_check ON almagest.remediations USING btree (check_name, id)'),
    (
        'remediations_health_run',
        'CREATE INDEX remediations_health_run ON almagest.remediations USING btree (health_run_id)'
    ),
    ('retrievals_age', 'CREATE INDEX retrievals_age ON ONLY almagest.retrievals USING brin (created_at)'),
    (
        'retrievals_org',
        'CREATE INDEX retrievals_org ON ONLY almagest.retrievals USING btree (org_id, created_at DESC)'
    ),
    (
        'retrievals_slow',
        'CREATE INDEX retrievals_slow ON ONLY almagest.retrievals USING btree (created_at) WHERE (took_ms >='
        ' (250)::double precision)'
    )

$$;

-- Whether another session builds an index of a table, or of one of its partitions, at this moment. Its index is invalid
-- until it is done, and whoever asks for another one of the same table then may end in a deadlock with it. Only the pid
-- of a build is shown to a role without pg_monitor; the lock that each build holds says of which table it is.
create or replace function engine.is_being_indexed(of_table regclass)
returns boolean language sql stable set search_path = '' as $$
    select exists (
        select from pg_catalog.pg_stat_progress_create_index as p
        join pg_catalog.pg_locks as l on l.pid = p.pid
        where p.pid <> pg_backend_pid() and l.granted and l.locktype = 'relation'
            and l.database = (select d.oid from pg_catalog.pg_database as d where d.datname = current_database())
            and l.mode in ('ShareUpdateExclusiveLock', 'ShareLock', 'AccessExclusiveLock')
            and l.relation in (
                select of_table::oid union all select h.inhrelid from pg_catalog.pg_inherits as h where h.inhparent = of_table
            )
    )
$$;

-- The table that an index is of, by the index where it is there, else by its definition.
create or replace function engine.table_of_index(name text, definition text)
returns regclass language sql stable set search_path = '' as $$
    select coalesce(
        (
            select x.indrelid::regclass from pg_catalog.pg_index as x
            where x.indexrelid = to_regclass(format('almagest.%I', name))
        ),
        to_regclass(substring(definition from ' ON (?:ONLY )?(almagest\.\w+) '))
    )
$$;

-- Whether an index is one that Almagest made: an expected one, a constraint's, a partition's of one of these, or what
-- remediation makes for a partition before its parent takes it over.
create or replace function engine.is_own_index(index oid)
returns boolean language sql stable set search_path = '' as $$
    select exists (
        select from pg_catalog.pg_index as x
        join pg_catalog.pg_class as c on c.oid = x.indexrelid
        join pg_catalog.pg_class as t on t.oid = x.indrelid
        where x.indexrelid = index and (
            c.relispartition
            or exists (select from pg_catalog.pg_constraint as k where k.conindid = index)
            or exists (
                select from engine.expected_indexes() as e where c.relname in (e.name, left(t.relname || '_' || e.name, 63))
            )
        )
    )
$$;

-- Whether an invalid index is what a `reindex concurrently` that broke off has left beside one of Almagest's.
create or replace function engine.is_leftover(name text)
returns boolean language sql stable set search_path = '' as $$
    select name ~ '_cc(new|old)[0-9]*$'
        and coalesce(engine.is_own_index(to_regclass(format('almagest.%I', regexp_replace(name, '_cc(new|old)[0-9]*$', '')))), false)
$$;

-- What is wrong with the indexes of the tables:
--   missing   there is none of this name
--   invalid   a build of it broke off, or not all partitions have it: no query uses it, and every write keeps it up
--   leftover  it is invalid, and beside the one that it was to replace
--   changed   it is not as the migrations made it
--   foreign   it is invalid, and nobody's here: whoever made it knows what it is for
-- One that is invalid since it is being built is no fault. definition is what makes it anew; null for one that is not
-- expected.
create or replace function engine.index_faults()
returns table (name text, fault text, definition text) language sql stable set search_path = '' as $$
    select e.name, 'missing', e.definition
    from engine.expected_indexes() as e
    where to_regclass('almagest.' || e.name) is null
    union all
    select
        c.relname,
        case
            when x.indisvalid and x.indisready then 'changed'
            when engine.is_own_index(c.oid) then 'invalid'
            when engine.is_leftover(c.relname) then 'leftover'
            else 'foreign'
        end,
        e.definition
    from pg_catalog.pg_index as x
    join pg_catalog.pg_class as c on c.oid = x.indexrelid
    left join engine.expected_indexes() as e on e.name = c.relname
    where c.relnamespace = 'almagest'::regnamespace
        and (
            (not (x.indisvalid and x.indisready) and not engine.is_being_indexed(x.indrelid))
            -- the schema of pgvector is quoted here
            or (
                x.indisvalid and x.indisready
                and replace(pg_get_indexdef(c.oid), '"', '') <> replace(e.definition, '"', '')
            )
        )
    order by 1
$$;
