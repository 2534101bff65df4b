"""Provider adapters, one module per kind of model server, and their shared code."""
