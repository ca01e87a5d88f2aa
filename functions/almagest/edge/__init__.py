"""The HTTP edge that every function shares: who asks, what they sent, and what they get told."""
