-- Rows as they were once migration 0011 had landed: an org that keeps its traces for a month.
insert into almagest.retention (org_id, trace_days) values ('0a000000-0000-0000-0000-000000000000', 30);
