"""Shared infrastructure: refusals, the queue, secrets, the live bus. No domain logic."""
