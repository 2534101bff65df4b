"""The actions behind the buttons of the chat page."""
