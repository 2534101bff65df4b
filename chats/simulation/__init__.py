"""Previews of policies: prompts that are composed and not sent; nothing here writes."""
