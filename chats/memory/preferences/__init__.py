"""A person's memory: consent, instructions, and stated or inferred preferences."""
