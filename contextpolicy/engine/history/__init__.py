"""Converts a stored message to the form in which a policy sends it: repaired and truncated."""
