"""Summaries: planning, prompts, extractive summaries, acceptance."""
