"""Endpoints of context policies: versions, assignments, previews, counts and evaluations."""
