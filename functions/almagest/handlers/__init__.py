"""One file a Lambda: event in, operation, response out."""
