"""The viewpoint of a policy preview: alone, or with the policies of a group or user."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from django import forms
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.utils.translation import gettext, gettext_lazy

from chats.admin.policies.labels import STRATEGY_NAMES
from contextpolicy.engine.policy.budget import PolicyImpossible
from contextpolicy.engine.policy.policy import PolicyValues, compute_default_reserve
from contextpolicy.models import ModelSpec
from contextpolicy.resolution import (
    FAR_TO_NEAR,
    Layer,
    Source,
    adjust_policy_values,
    list_chat_layers,
    list_group_layers,
    merge_layers,
)
from contextpolicy.roles import find_person_by_name

LEVELS = {
    "instance": gettext_lazy("everyone"),
    "group": gettext_lazy("group"),
    "user": gettext_lazy("user"),
    "agent": gettext_lazy("agent"),
    "chat": gettext_lazy("chat"),
}


@dataclass(frozen=True, slots=True)
class Viewpoint:
    """The conditions of a policy preview: other policies, the policy's level, and the model."""

    layers: Sequence[Layer] = ()
    level: str = "instance"
    model_window: int | None = None
    model_tools: Sequence[str] | None = None
    source: str = ""
    is_alone: bool = False


@dataclass(frozen=True, slots=True)
class Effective:
    """The effective values, the source of each, and the names of the policies."""

    values: PolicyValues
    sources: Mapping[str, Source]
    names: Mapping[tuple[str, str], str]

    def source_of(self, name: str) -> str:
        level, slug, version, locked = self.sources[name]
        if level == "setting":
            return gettext("server setting")
        if level == "default":
            if name == "reserve_tokens" and self.values.reserve_tokens == compute_default_reserve(
                self.values.token_budget
            ):
                return gettext("a quarter of the token budget")
            strategy = STRATEGY_NAMES.get(self.values.strategy, self.values.strategy)
            return gettext("default of “{strategy}”").format(strategy=strategy)
        source = f"{LEVELS.get(level, level)} · {self.names.get((level, slug), slug)} v{version}"
        return gettext("{value}, locked").format(value=source) if locked else source


class ViewpointForm(forms.Form):
    """Selects the viewpoint of the preview. All fields empty: no other policy applies."""

    prefix = "seen"
    group = forms.ModelChoiceField(
        Group.objects.order_by("name"),
        label=gettext_lazy("Group"),
        required=False,
        empty_label=gettext_lazy("no group"),
    )
    person = forms.CharField(
        label=gettext_lazy("User"),
        max_length=150,
        required=False,
        help_text=gettext_lazy("Enter a user name."),
    )
    chat = forms.UUIDField(
        label=gettext_lazy("Chat"),
        required=False,
        help_text=gettext_lazy("Enter the ID of one of this user’s chats."),
    )
    model = forms.ModelChoiceField(
        ModelSpec.objects.all(),
        label=gettext_lazy("Model"),
        required=False,
        to_field_name="slug",
        empty_label=gettext_lazy("any model"),
    )

    def clean_person(self) -> User | None:
        """Find the user; raises ValidationError if there is none."""
        name = self.cleaned_data["person"]
        person = find_person_by_name(name)
        if name and person is None:
            raise forms.ValidationError(gettext("No user has this name. Check the spelling."))
        return person

    def viewpoint(self) -> Viewpoint:
        """Return the selected viewpoint; invalid fields are ignored."""
        given = self.cleaned_data if self.is_valid() else {}
        person, group, model = given.get("person"), given.get("group"), given.get("model")
        window = model.window if model else None
        own_tools = model.tools if model else None
        if person is not None:
            chat = given.get("chat")
            layers = list_chat_layers(user_id=person.pk, chat_id=chat)
            if chat and model:
                text = gettext("{person} in one chat with {model}")
            elif chat:
                text = gettext("{person} in one chat")
            else:
                text = gettext("{person} with {model}") if model else "{person}"
            level = "chat" if chat else "user"
            text = text.format(person=person, model=model)
            return Viewpoint(layers, level, window, own_tools, text)
        if group is not None:
            layers = list_group_layers(group.pk)
            text = gettext("group {group} with {model}") if model else gettext("group {group}")
            text = text.format(group=group, model=model)
            return Viewpoint(layers, "group", window, own_tools, text)
        if model:
            text = gettext("this policy alone with {model}").format(model=model)
            return Viewpoint((), "instance", window, own_tools, text)
        return Viewpoint((), "instance", source=gettext("this policy alone"), is_alone=True)


def load_server_defaults() -> dict[str, object]:
    """Return the values that apply under strategy `simple` if no policy sets them."""
    return {
        "window_size": settings.HISTORY_WINDOW,
        "max_chars_per_message": settings.MAX_CHARS_PER_MESSAGE,
    }


def merge_viewpoint_layers(ours: Layer, viewpoint: Viewpoint) -> Effective:
    """Merge a policy with the other policies of a viewpoint.

    A policy that is assigned there keeps its position. Any other policy replaces the one that is
    assigned at the viewpoint's level, as a new assignment would.
    """
    is_there = any(layer.slug == ours.slug for layer in viewpoint.layers)
    layers = [
        Layer(layer.level, ours.slug, ours.name, ours.version, ours.values, ours.locks)
        if layer.slug == ours.slug
        else layer
        for layer in viewpoint.layers
        if is_there or layer.level != ours.level
    ]
    layers += [] if is_there else [ours]
    layers.sort(key=lambda layer: FAR_TO_NEAR.index(layer.level))
    values, sources = merge_layers(layers, defaults=load_server_defaults())
    # For an impossible combination, the warnings explain it and the fields show the policies'
    # values.
    with suppress(PolicyImpossible):
        values, _ = adjust_policy_values(
            values, model_window=viewpoint.model_window, model_tools=viewpoint.model_tools
        )
    return Effective(values, sources, {(each.level, each.slug): each.name for each in layers})
