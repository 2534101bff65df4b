"""Code shared by all endpoints: base classes, authentication, errors, pagination, idempotency."""
