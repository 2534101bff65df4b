"""The base of every room: refusals, the queue, secrets, the live bus. Nothing of the domain."""
