"""Admin pages of context policies: editor, preview, assignments, counts and evaluations."""
