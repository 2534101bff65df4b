"""Authentication: sign-in, sessions, invitations and API keys."""
