"""The event streams of a reply, for the page and for programs."""
