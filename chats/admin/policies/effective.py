"""The page that explains a user's effective policy: each field's source and overridden values."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, cast

from django import forms
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import dateformat
from django.utils.translation import gettext, gettext_lazy, ngettext
from django_stubs_ext import StrOrPromise

from chats.admin.audit.ledger import EffectivePolicyAdmin
from chats.admin.forms import AdminForm
from chats.admin.policies.display_values import format_stored_value
from chats.admin.policies.policy_form import PolicyForm
from chats.admin.policies.policy_groups import build_policy_fieldsets
from chats.ground.refusals import Refusal
from chats.models import Agent, Chat
from chats.prompt.policy_explanation import Explanation, explain_for, find_viewpoint_by_names
from contextpolicy.explanation import LOST, WON, ExplainedField
from contextpolicy.models import ModelSpec
from contextpolicy.roles import find_person_by_name

MOST_PEOPLE, MOST_CHATS = 20, 50
# Fields that are chosen together.
STRATEGY = ("strategy", "strategy_config")
LEVELS: Mapping[str, StrOrPromise] = {
    "instance": gettext_lazy("everyone"),
    "group": gettext_lazy("a group"),
    "user": gettext_lazy("the user"),
    "agent": gettext_lazy("the agent"),
    "chat": gettext_lazy("the chat"),
    "setting": gettext_lazy("the server"),
    "default": gettext_lazy("the strategy"),
}


class EffectivePolicyForm(AdminForm):
    """Form for the effective policy of a user, optionally with chat, agent and model.

    After `is_valid`, `people` lists the matches if a search found several. Chats and agents can be
    chosen once a user and a chat are selected.
    """

    person = forms.CharField(
        label=gettext_lazy("User"),
        max_length=150,
        help_text=gettext_lazy("Enter a user name or part of one."),
    )
    chat = forms.ChoiceField(
        label=gettext_lazy("Chat"),
        required=False,
        choices=[("", gettext_lazy("A chat without its own policy"))],
    )
    agent = forms.ChoiceField(
        label=gettext_lazy("Agent"), required=False, choices=[("", gettext_lazy("None"))]
    )
    model = forms.ModelChoiceField(
        ModelSpec.objects.all(),
        label=gettext_lazy("Model"),
        required=False,
        to_field_name="slug",
        empty_label=gettext_lazy("Model for the next reply"),
    )

    def __init__(self, data: Mapping[str, str] | None = None) -> None:
        super().__init__(data)
        given = data or {}
        found = find_users_by_name(given.get("person", "").strip())
        self.chosen = found[0] if len(found) == 1 else None
        self.people = found if len(found) > 1 else []
        chats = (
            list_selectable_chats(self.chosen, named=given.get("chat", "")) if self.chosen else []
        )
        chat = next((each for each in chats if str(each.pk) == given.get("chat")), None)
        self.offer("chat", [(str(each.pk), format_chat_label(each)) for each in chats])
        agents = list_selectable_agents(chat) if chat else []
        self.agents = {key: label for key, label, _role in agents}
        self.roles = {key: role for key, _label, role in agents}
        self.offer("agent", list(self.agents.items()))
        if not chats:
            self.fields["chat"].help_text = gettext("Choose a user to list their chats.")
        if not chat or not chat.team_id:
            message = gettext("Choose a team chat to list its agents.")
            self.fields["agent"].help_text = message

    def offer(self, name: str, choices: Sequence[tuple[str, str]]) -> None:
        field = self.fields[name]
        if isinstance(field, forms.ChoiceField):
            field.choices = [*cast(list[tuple[str, str]], field.choices), *choices]

    def clean_person(self) -> str:
        """Return the user name; raises ValidationError unless exactly one user matches."""
        if self.chosen is not None:
            return self.chosen.get_username()
        if self.people:
            raise forms.ValidationError(
                gettext("Several users match. Choose one of them below."), code="several_people"
            )
        raise forms.ValidationError(
            gettext("No user has this name. Try part of the name."), code="unknown_person"
        )

    def explained(self) -> Explanation:
        """Return the explanation. Raises `NotThere` and `PolicyRefused`."""
        given = self.cleaned_data
        return explain_for(
            find_viewpoint_by_names(
                username=given["person"],
                chat_id=uuid.UUID(given["chat"]) if given["chat"] else None,
                role_id=self.roles.get(given["agent"], ""),
                model=given["model"].slug if given["model"] else "",
            )
        )


def find_users_by_name(text: str) -> list[User]:
    """Return the user with this name, otherwise up to 20 users whose names contain the text."""
    if not text:
        return []
    exact = find_person_by_name(text)
    if exact is not None:
        return [exact]
    named = Q(username__icontains=text) | Q(first_name__icontains=text)
    rows = User.objects.filter(named | Q(last_name__icontains=text))
    return list(rows.order_by("username")[:MOST_PEOPLE])


def list_selectable_chats(person: User, *, named: str) -> list[Chat]:
    """Return a user's newest chats, and the chat with the given ID."""
    rows = Chat.objects.filter(owner=person).select_related("team__current")
    newest = list(rows.filter(deleted_at=None).order_by("-updated_at")[:MOST_CHATS])
    try:
        older = rows.filter(pk=uuid.UUID(named)).exclude(pk__in=[chat.pk for chat in newest])
    except ValueError:
        return newest
    return [*newest, *older]


def format_chat_label(chat: Chat) -> str:
    """Return a label for a chat. Its title is content, so it is not shown."""
    count = chat.accepted_count
    if chat.team_id:
        form = ngettext(
            "Team chat last used {time} UTC, {n:,} message ({id})",
            "Team chat last used {time} UTC, {n:,} messages ({id})",
            count,
        )
    else:
        form = ngettext(
            "Chat last used {time} UTC, {n:,} message ({id})",
            "Chat last used {time} UTC, {n:,} messages ({id})",
            count,
        )
    used = dateformat.format(chat.updated_at, gettext("j M Y H:i"))
    return form.format(time=used, n=count, id=str(chat.pk)[:8])


def list_selectable_agents(chat: Chat) -> list[tuple[str, str, str]]:
    """Return (key, label, role ID) for the agents of a chat's team.

    Agents of a personal team are only numbered: their names and role IDs are the owner's content.
    """
    if chat.team is None:
        return []
    found = Agent.objects.filter(version=chat.team.current_id).order_by("place")
    if chat.team.owner_id is None:
        return [(agent.role_id, agent.name, agent.role_id) for agent in found]
    return [
        (f"agent-{number}", gettext("Agent {number}").format(number=number), agent.role_id)
        for number, agent in enumerate(found, 1)
    ]


class ExplainedPolicyAdmin(EffectivePolicyAdmin):
    """Stored effective policies, and a page that explains the effective policy of a user."""

    change_list_template = "admin/contextpolicy/effectivepolicy/change_list.html"

    def get_urls(self) -> list[URLPattern]:
        page = self.admin_site.admin_view(self.explain)
        return [path("explain/", page, name="contextpolicy_effective_explain"), *super().get_urls()]

    def explain(self, request: HttpRequest) -> HttpResponse:
        """Show the form and, once a user is chosen, every field of their policy.

        All choices are in the URL, so it can be shared. Raises PermissionDenied without the
        permission to view policies.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        asked = "person" in request.GET
        form = EffectivePolicyForm(request.GET if asked else None)
        found = None
        if asked and form.is_valid():
            try:
                found = form.explained()
            except Refusal as refusal:
                form.add_error(None, refusal.localized)
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Effective policies"),
            "opts": self.opts,
            "form": form,
            "found": found,
            "agent": form.agents.get(form["agent"].value() or "", ""),
            "groups": group_explained_fields(found.fields) if found else [],
        }
        template = "admin/contextpolicy/effectivepolicy/explain.html"
        return TemplateResponse(request, template, context)


def group_explained_fields(
    fields: Sequence[ExplainedField],
) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the fields with labels, grouped and ordered as in the policy form."""
    rows = {field.name: build_explained_row(field) for field in fields}
    found = [(gettext("Strategy"), [rows.pop(name) for name in STRATEGY if name in rows])]
    for title, options in build_policy_fieldsets():
        names = [each if isinstance(each, str) else each[0] for each in options["fields"]]
        found.append((title, [rows.pop(name) for name in names if name in rows]))
    found.append((gettext("Other"), list(rows.values())))
    return [(title, held) for title, held in found if held]


def get_base_field_label(name: str) -> str:
    field = PolicyForm.base_fields.get(name)
    return str(field.label) if field and field.label else name.replace("_", " ").capitalize()


def build_explained_row(field: ExplainedField) -> dict[str, Any]:
    level, slug, version, locked = field.source
    return {
        "name": field.name,
        "label": get_base_field_label(field.name),
        "value": format_stored_value(field.name, field.value),
        "wanted": format_stored_value(field.name, field.wanted) if field.was_adjusted else "",
        "policy": field.policy or slug,
        "version": version,
        "level": LEVELS.get(level, level),
        "locked": locked,
        "reason": gettext(WON[field.reason]),
        "is_set": level not in ("default", "setting"),
        "is_used": field.is_used,
        "losing": [
            {
                "value": format_stored_value(field.name, lost.value),
                "policy": lost.name,
                "version": lost.version,
                "level": LEVELS.get(lost.level, lost.level),
                "reason": gettext(LOST[lost.reason]),
            }
            for lost in field.losing
        ],
    }
