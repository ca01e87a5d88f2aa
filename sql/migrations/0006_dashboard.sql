-- A schema for what people read in the Supabase dashboard: views, made in sql/dashboard.

create schema dashboard;
comment on schema dashboard is
'Views for the owner of the project: ids, figures and aggregates, no content. Closed to every role of the API.';

comment on table almagest.search_profiles is
'Search knobs by profile: an org''s own row is laid over the built-in one; org_id null: for all orgs of an installation.';
