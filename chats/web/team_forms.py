"""The form of a team: the team's fields, and a formset of its agents."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Self, cast

from django import forms
from django.utils.translation import gettext, gettext_lazy

from chats.ground.refusals import Refusal
from chats.models import Agent, Team, TeamVersion
from chats.teams import play
from chats.teams.presets import WINDOW
from chats.teams.rosters import TeamChanged
from chats.teams.team_drafts import AgentDraft, TeamDraft
from chats.web.forms import (
    OptionField,
    PageForm,
    RefusalCatcher,
    TextField,
    WholeNumberField,
    build_text_input,
)
from chats.web.thread.entries import get_role_shape
from contextpolicy.engine.team.rounds import MOST_MEMBERS
from contextpolicy.engine.team.team import MAX_BYTES

# Default window that contains a whole round.
NEW_AGENT = AgentDraft(name="", window_size=WINDOW)
PREFIX = "agent"
Choices = Sequence[tuple[str, str]]


class TeamForm(PageForm):
    """The fields of a team except its agents, named like the fields of its draft."""

    id_format = "team-%s"

    name = TextField(
        label=gettext_lazy("Name"), required=False, max_length=100, widget=build_text_input()
    )
    task = TextField(
        label=gettext_lazy("Task"),
        required=False,
        help_text=gettext_lazy(
            "This task is sent to every agent in new chats with this team. Text beyond 5,120 "
            "bytes (UTF-8) is cut off."
        ),
        widget=forms.Textarea(attrs={"dir": "auto", "rows": 3}),
    )
    routing = OptionField(
        label=gettext_lazy("Default responder"),
        required=False,
        choices=TeamVersion.Routing.choices,
        widget=forms.RadioSelect,
    )
    independent = forms.BooleanField(
        label=gettext_lazy(
            "Independent replies: all agents reply at the same time and do not see each other’s "
            "replies"
        ),
        required=False,
    )
    goes_on_after_failure = forms.BooleanField(
        label=gettext_lazy("Continue the round if a reply fails"), required=False
    )
    hop_limit = WholeNumberField(
        label=gettext_lazy("Replies per round"), required=False, min_value=1, max_value=50
    )
    token_limit = WholeNumberField(
        label=gettext_lazy("Tokens per round"), required=False, min_value=1, max_value=10_000_000
    )
    seconds_limit = WholeNumberField(
        label=gettext_lazy("Seconds per round"), required=False, min_value=1, max_value=86_400
    )
    message_cap = WholeNumberField(
        label=gettext_lazy("Maximum messages in prompts"),
        required=False,
        min_value=0,
        max_value=100_000,
        empty=0,
        help_text=gettext_lazy(
            "If the chat has more messages, the oldest are left out of prompts. They stay in "
            "the chat and can be found with “Find in originals”. Enter 20 to 100,000, but at "
            "least the number of replies per round. 0: no limit."
        ),
    )
    max_bytes = WholeNumberField(
        label=gettext_lazy("Maximum prompt size (bytes)"),
        required=False,
        min_value=0,
        max_value=100_000_000,
        empty=MAX_BYTES,
        help_text=gettext_lazy(
            "The oldest messages are left out of longer prompts. From 1,024 to 100,000,000 bytes. "
            "Default: 786,432. 0: no limit, except 786,432 in prompts for agents in other "
            "applications."
        ),
    )
    shared = forms.BooleanField(label=gettext_lazy("Shared with everyone"), required=False)
    # The number of the edited version. 0: a new team.
    based_on = WholeNumberField(
        required=False, min_value=0, max_value=10**9 - 1, empty=0, widget=forms.HiddenInput
    )


class AgentForm(PageForm):
    """An agent, with fields named like those of its draft."""

    previews: Sequence[str] = ()

    role_id = TextField(required=False, widget=forms.HiddenInput)
    agent_type = TextField(required=False, widget=forms.HiddenInput)
    instruction_file_text = TextField(required=False, widget=forms.HiddenInput)
    name = TextField(
        label=gettext_lazy("Name"), required=False, max_length=60, widget=build_text_input()
    )
    type = OptionField(
        label=gettext_lazy("Type"),
        required=False,
        choices=[
            (Agent.Type.AI.value, gettext_lazy("An agent")),
            (Agent.Type.HUMAN.value, gettext_lazy("A person (you answer)")),
        ],
    )
    model = OptionField(label=gettext_lazy("Model"), required=False)
    instruction = TextField(
        label=gettext_lazy("Instruction"),
        required=False,
        widget=forms.Textarea(attrs={"dir": "auto", "rows": 3}),
    )
    window_size = WholeNumberField(
        label=gettext_lazy("Visible earlier messages"),
        required=False,
        min_value=0,
        max_value=100,
        help_text=gettext_lazy(
            "The agent sees this many earlier messages, from 0 to 100. 12 messages include a whole "
            "round of up to 8 replies."
        ),
    )
    prompt_form = OptionField(
        label=gettext_lazy("Prompt format"),
        required=False,
        choices=Agent.PromptForm.choices,
        help_text=gettext_lazy(
            "Separate messages keep the provider’s prompt cache valid. Use a text format "
            "only for a model that was trained on it."
        ),
    )
    policy = OptionField(label=gettext_lazy("Policy"), required=False)
    rests = forms.BooleanField(label=gettext_lazy("Inactive"), required=False)

    def __init__(self, *args: Any, models: Choices, policies: Choices, **options: Any) -> None:
        # Otherwise a formset ignores the values of unchanged forms.
        options.pop("empty_permitted", None)
        super().__init__(*args, **{**options, "auto_id": "%s"})
        cast(OptionField, self.fields["model"]).choices = [
            ("", gettext_lazy("Chat model")),
            *models,
        ]
        if policies:
            cast(OptionField, self.fields["policy"]).choices = [
                ("", gettext_lazy("No separate policy")),
                *policies,
            ]
        else:
            self.fields["policy"].widget = forms.HiddenInput()

    def read_draft(self) -> AgentDraft:
        """Return the typed agent, not yet validated. The browser sends no empty choices."""
        values = self.read_values()
        values["type"] = values["type"] or Agent.Type.AI
        values["prompt_form"] = values["prompt_form"] or Agent.PromptForm.MESSAGES
        return AgentDraft(**values)

    @property
    def shape(self) -> str:
        """CSS classes for the agent's colour and shape in chats; empty for a new agent."""
        role_id = self["role_id"].value()
        return f"who who--{get_role_shape(role_id)}" if role_id else ""


# One more than allowed, so that the domain refuses it and names the limit.
AgentFormSet = forms.formset_factory(
    AgentForm, extra=0, max_num=MOST_MEMBERS + 1, absolute_max=MOST_MEMBERS + 1
)


class TeamForms:
    """The form of a team and the formset of its agents, with the values of `draft`."""

    def __init__(self, team: TeamForm, agents: Any, *, draft: TeamDraft) -> None:
        self.team = team
        self.agents = agents
        self.draft = draft
        for form, agent in zip(agents, draft.agents, strict=True):
            # Instructions that are sent to the agent.
            form.previews = play.preview_agent_texts(agent, draft=draft)

    @classmethod
    def from_draft(
        cls, draft: TeamDraft, *, options: Mapping[str, Choices], based_on: int = 0
    ) -> Self:
        """`options`: the `models` and `policies` that the agents can have.

        `based_on`: the number of the version that the draft changes. 0: a new team.
        """
        values = {name: value for name, value in asdict(draft).items() if name != "agents"}
        agents = [asdict(agent) for agent in draft.agents]
        return cls(
            TeamForm(initial={**values, "based_on": based_on}),
            AgentFormSet(initial=agents, prefix=PREFIX, form_kwargs=dict(options)),
            draft=draft,
        )

    @classmethod
    def from_data(cls, sent: Mapping[str, Any], *, options: Mapping[str, Choices]) -> Self:
        """Return the forms with the typed values; their `draft` is not yet validated."""
        team = TeamForm(sent)
        agents = AgentFormSet(sent, prefix=PREFIX, form_kwargs=dict(options))
        values = team.read_values()
        del values["shared"]
        del values["based_on"]
        draft = TeamDraft(**values, agents=[form.read_draft() for form in agents])
        return cls(team, agents, draft=draft)

    @property
    def based_on(self) -> int:
        """The number of the version that the draft changes. 0: none."""
        field = self.team["based_on"]
        return int(field.field.to_python(field.value()) or 0)

    @property
    def is_shared(self) -> bool:
        return bool(self.team["shared"].value())

    def catch_refusal(self) -> RefusalCatcher:
        """Return a context that ends at a refusal of the domain and shows it at its field."""
        return RefusalCatcher(self.refuse)

    def refuse(self, refusal: Refusal) -> None:
        """Show the refusal at its field, which can be one of an agent: `agents.0.name`.

        After `TeamChanged`, the form replaces the newer version when it is saved again.
        """
        self.team.refuse(refusal)
        if isinstance(refusal, TeamChanged):
            self.team.data = dict(self.team.data.items()) | {"based_on": refusal.number}
        group, _, rest = (refusal.param or "").partition(".")
        place, _, name = rest.partition(".")
        if group == "agents" and place.isdigit():
            self.agents.forms[int(place)].refuse(refusal, field=name)


class ResponderForm(PageForm):
    """Who replies in a chat: its model, or a team."""

    team = OptionField(
        label=gettext_lazy("The model or team replies starting with the next message"),
        required=False,
        widget=forms.RadioSelect,
    )

    def __init__(self, *args: Any, teams: Sequence[Team], **options: Any) -> None:
        super().__init__(*args, **options)
        cast(OptionField, self.fields["team"]).choices = [
            ("", gettext_lazy("The chat’s model")),
            *((str(team.pk), label_team(team)) for team in teams),
        ]


def label_team(team: Team) -> str:
    """Return the name of a team, marked if the team is deleted."""
    if team.deleted_at is None:
        return team.name
    return gettext("{name} (deleted)").format(name=team.name)


class TaskForm(PageForm):
    """The task of a chat's team."""

    task = TextField(
        label=gettext_lazy("Task"),
        required=False,
        help_text=gettext_lazy(
            "This task is sent to every agent that replies in this chat. Text beyond 5,120 bytes "
            "(UTF-8) is cut off."
        ),
        widget=forms.Textarea(attrs={"dir": "auto", "rows": 4}),
    )
