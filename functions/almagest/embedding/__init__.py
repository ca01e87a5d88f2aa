"""Text -> vector: the only place that knows a model."""
