"""Matches the messages of a request to a stored branch."""
