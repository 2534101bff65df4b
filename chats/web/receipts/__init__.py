"""The page "What the model saw"."""
