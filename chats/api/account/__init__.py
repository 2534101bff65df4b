"""Endpoints of a person's account: keys, models, memory, usage and webhooks."""
