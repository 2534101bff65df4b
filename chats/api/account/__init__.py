"""Endpoints of a user's account: keys, models, memory, usage and webhooks."""
