"""The health checks: one file a check, each a function from a probe to what it found."""
