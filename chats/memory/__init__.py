"""Memory beyond the prompt: the searchable archive, and preferences."""
