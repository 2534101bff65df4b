"""A person's consent, instructions and preferences: stated ones and inferred ones."""
