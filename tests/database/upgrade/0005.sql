-- Rows as they were once migration 0005 had landed.
insert into almagest.partition_statistics (org_id, documents, total_length) values
    ('0a000000-0000-0000-0000-000000000000', 30000, 900000);
insert into almagest.term_statistics (org_id, term, documents) values
    ('0a000000-0000-0000-0000-000000000000', 'deploy', 12000);
