"""The almagest command."""
