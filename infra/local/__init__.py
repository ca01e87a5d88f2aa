"""The local stack: what Supabase and AWS are to a deployment, on one machine and for one person."""
