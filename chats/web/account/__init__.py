"""Sign-in, sign-out and the account pages."""
