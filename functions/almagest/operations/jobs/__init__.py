"""Scheduled work: what a job is, what it works with, and how it is run once."""
