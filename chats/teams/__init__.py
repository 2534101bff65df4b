"""Chats with several agents: members, messages, task, and each agent's context."""
