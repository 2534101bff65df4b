"""Teams to begin with: drafts that a person takes over and changes."""

from collections.abc import Mapping

from chats.teams.rosters import AgentDraft, TeamDraft

PRESETS: Mapping[str, TeamDraft] = {
    "planner-critic-writer": TeamDraft(
        name="Planner, critic, writer",
        agents=(
            AgentDraft(
                name="Planner",
                instruction="Break the task into steps. Say what is unclear. Do not write the"
                " result itself.",
            ),
            AgentDraft(
                name="Critic",
                instruction="Look for what is wrong, missing or risky in the newest proposal. Name"
                " the two most important points and how to mend them.",
            ),
            AgentDraft(
                name="Writer",
                instruction="Write the result, with the plan and the criticism in mind. Answer the"
                " person, not the team.",
            ),
        ),
    ),
    "support": TeamDraft(
        name="Support with escalation",
        routing="person",
        agents=(
            AgentDraft(
                name="Support",
                instruction="Answer the person's question in plain words. If it needs a"
                " specialist, say so in one sentence and call one with [NEXT:Specialist].",
            ),
            AgentDraft(
                name="Specialist",
                instruction="Answer what Support could not. Be exact; name what you do not know."
                " If a person has to decide, call [NEXT:Lead].",
            ),
            AgentDraft(name="Lead", type="human"),
        ),
    ),
    "debate": TeamDraft(
        name="Debate of two models",
        routing="round_robin",
        hop_limit=6,
        agents=(
            AgentDraft(
                name="Pro",
                instruction="Argue for the proposal, with the strongest reasons. Answer the"
                " newest objection first.",
            ),
            AgentDraft(
                name="Con",
                instruction="Argue against the proposal, with the strongest reasons. Answer the"
                " newest argument first.",
            ),
        ),
    ),
}
