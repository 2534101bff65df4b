"""A user's memory: consent, instructions, and stated or inferred preferences."""
