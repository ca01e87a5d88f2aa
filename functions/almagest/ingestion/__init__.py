"""Text -> clean text -> chunks -> index."""
