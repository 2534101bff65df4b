"""Texts that the source documents of team chats fix word for word."""

MESSAGE_REQUIRED = "Message cannot be null or undefined"
CONTENT_NOT_TEXT = "Message content must be a string"
SPEAKER_REQUIRED = "Message speaker is required"
ROLE_ID_REQUIRED = "Message speaker.roleId is required"
INVALID_SNAPSHOT = "Invalid snapshot format"
DEDUPLICATED = "[ContextManager] Deduplicated context for AI→AI"
