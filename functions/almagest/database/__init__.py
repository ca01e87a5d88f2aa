"""The two doors to Postgres: rpc (supabase, request paths) and session (psycopg, scheduled work)."""
