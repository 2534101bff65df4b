"""Tool servers (MCP): their accounts, the definitions of their tools, and tool calls."""
