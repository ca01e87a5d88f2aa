"""What the system can do: one plain function each, called by HTTP and by the CLI alike."""
