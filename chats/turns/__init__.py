"""The way of a message: accepted, claimed, replied to, written down, recovered."""
