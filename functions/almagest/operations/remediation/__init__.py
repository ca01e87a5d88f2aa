"""Remediation: what the system does by itself about what its health checks found."""
