"""Requests that are passed to the provider without a chat."""
