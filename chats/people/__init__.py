"""People at the door: signing in, their sessions, their API keys."""
