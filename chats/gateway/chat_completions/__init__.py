"""The chat completions endpoint, and dry runs of its requests."""
