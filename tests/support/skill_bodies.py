"""Skills as the API gets them, and the scopes of keys that may write them."""

NEW_SKILL = {"name": "Refunds", "description": "Answer refunds.", "text": "Ask for the number."}
POLICY_SCOPES = ("policy:read", "policy:write")
