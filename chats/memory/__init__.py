"""Memory beyond the prompt: the archive, its search, and preferences."""
