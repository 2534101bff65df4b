"""Teams of agents: messages, rounds, state, and the view of each agent.

Receivers of the signals in `chats.teams` import the message type from here.
"""

from contextpolicy.engine.team.team import TeamMessage

__all__ = ["TeamMessage"]
