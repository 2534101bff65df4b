"""The page of the state of a chat."""
