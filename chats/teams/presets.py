"""Preset teams, which users can copy and adapt."""

from collections.abc import Mapping

from chats.teams.team_drafts import AgentDraft, TeamDraft

# A round has up to 8 replies. With the default window of 5, a member would not see all of them.
WINDOW = 12

PRESETS: Mapping[str, TeamDraft] = {
    "planner-critic-writer": TeamDraft(
        name="Planner, critic, writer",
        agents=(
            AgentDraft(
                window_size=WINDOW,
                name="Planner",
                instruction="Break the task into steps. Say what is unclear. Do not write the"
                " result itself.",
            ),
            AgentDraft(
                window_size=WINDOW,
                name="Critic",
                instruction="Look for what is wrong, missing or risky in the newest proposal. Name"
                " the two most important points and how to mend them.",
            ),
            AgentDraft(
                window_size=WINDOW,
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
                window_size=WINDOW,
                name="Support",
                instruction="Answer the person's question in plain words. If it needs a"
                " specialist, say so in one sentence and call one with [NEXT:Specialist].",
            ),
            AgentDraft(
                window_size=WINDOW,
                name="Specialist",
                instruction="Answer what Support could not. Be exact; name what you do not know."
                " If a person has to decide, call [NEXT:Lead].",
            ),
            AgentDraft(name="Lead", type="human", window_size=WINDOW),
        ),
    ),
    "debate": TeamDraft(
        name="Debate of two models",
        routing="round_robin",
        hop_limit=6,
        agents=(
            AgentDraft(
                window_size=WINDOW,
                name="Pro",
                instruction="Argue for the proposal, with the strongest reasons. Answer the"
                " newest objection first.",
            ),
            AgentDraft(
                window_size=WINDOW,
                name="Con",
                instruction="Argue against the proposal, with the strongest reasons. Answer the"
                " newest argument first.",
            ),
        ),
    ),
}
