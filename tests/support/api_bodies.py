"""Request bodies that several tests of the API send."""

NEW_KEY = {"name": "CI", "scopes": ["chats:read"], "lifetime_days": 7}
WINDOW_POLICY = {
    "strategy": "simple",
    "window_size": 20,
    "token_budget": 8_000,
    "reserve_tokens": 1_000,
}
PLANNER_AGENT = {"name": "Planner", "instruction": "Plan.", "window_size": 9}
NEW_TEAM = {
    "name": "Crew",
    "agents": [PLANNER_AGENT, {"name": "Critic", "window_size": 12}],
    "task": "Sell apples",
}
