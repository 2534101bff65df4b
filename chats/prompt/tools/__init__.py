"""The built-in tools that a model may call, and their registry."""
