"""Pass-through: requests sent to the provider without a chat."""
