"""Endpoints of teams and of the agents in a chat."""
