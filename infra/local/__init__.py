"""The local stack: what Supabase and AWS are to a deployment, on one machine and for one person."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: its documents are read, its template is run."""
