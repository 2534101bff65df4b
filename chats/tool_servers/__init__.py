"""Servers with tools for models (MCP): their accounts, their definitions, and calls of tools."""
