"""The wire contract: pydantic requests and results, one module a part."""
