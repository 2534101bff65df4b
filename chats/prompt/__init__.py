"""Prompts: choose the model, compose the request, count tokens, offer tools."""
