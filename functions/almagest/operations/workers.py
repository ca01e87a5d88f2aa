"""Names of workers: who holds a lease."""

import os
import secrets
import socket


def new_worker() -> str:
    """A name that no other has: where it runs, for a person who reads it, and something of its own."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
