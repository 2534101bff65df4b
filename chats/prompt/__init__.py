"""Prompts: chooses the model, composes what it is sent, counts tokens, and offers tools."""
