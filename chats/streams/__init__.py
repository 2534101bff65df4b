"""The event streams of a reply, for pages and API clients."""
