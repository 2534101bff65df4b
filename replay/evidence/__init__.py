"""Measures how often a prompt contains the messages that a question requires."""
