"""Previews of policies: prompts are composed but not sent, and nothing is stored."""
