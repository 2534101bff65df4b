"""The place from which a policy is looked at: by itself, or with those of a group or person."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from django import forms
from django.conf import settings
from django.contrib.auth.models import Group, User

from contextpolicy.admin.words import STRATEGY_NAMES
from contextpolicy.engine.budget import PolicyImpossible
from contextpolicy.engine.policy import PolicyValues, quarter
from contextpolicy.models import ModelSpec
from contextpolicy.resolution import (
    FAR_TO_NEAR,
    Layer,
    Source,
    layers_for,
    layers_of_group,
    made_to_work,
    merge,
)

LEVELS = {
    "instance": "everybody",
    "group": "group",
    "user": "person",
    "agent": "agent",
    "chat": "chat",
}


@dataclass(frozen=True, slots=True)
class Viewpoint:
    """The other policies that count there, the level that this one would have, and a model."""

    layers: Sequence[Layer] = ()
    level: str = "instance"
    model_window: int | None = None
    told: str = "this policy alone"


@dataclass(frozen=True, slots=True)
class Effective:
    """The values that would hold, with the source of each, and the names of the policies."""

    values: PolicyValues
    sources: Mapping[str, Source]
    names: Mapping[tuple[str, str], str]

    def source_of(self, name: str) -> str:
        """Say where a value comes from."""
        level, slug, version, locked = self.sources[name]
        if level == "setting":
            return "setting of the server"
        if level == "default":
            if name == "reserve_tokens" and self.values.reserve_tokens == quarter(
                self.values.token_budget
            ):
                return "a quarter of the token budget"
            return f"default of “{STRATEGY_NAMES.get(self.values.strategy, self.values.strategy)}”"
        told = f"{LEVELS.get(level, level)} · {self.names.get((level, slug), slug)} v{version}"
        return f"{told}, locked" if locked else told


class ViewpointForm(forms.Form):
    """Asks from where the empty fields are looked at; everything empty: the policy alone."""

    prefix = "seen"
    group = forms.ModelChoiceField(
        Group.objects.order_by("name"), required=False, empty_label="no group"
    )
    person = forms.CharField(
        max_length=150, required=False, help_text="The name with which they sign in."
    )
    chat = forms.UUIDField(required=False, help_text="The id of one of this person's chats.")
    model = forms.ModelChoiceField(
        ModelSpec.objects.all(), required=False, to_field_name="slug", empty_label="any model"
    )

    def clean_person(self) -> User | None:
        """Find the person; raises ValidationError if there is none."""
        name = self.cleaned_data["person"]
        person = User.objects.filter(username=name).first() if name else None
        if name and person is None:
            raise forms.ValidationError("There is nobody with this user name.")
        return person

    def viewpoint(self) -> Viewpoint:
        """Return what is asked for; what cannot be read is left out."""
        given = self.cleaned_data if self.is_valid() else {}
        person, group, model = given.get("person"), given.get("group"), given.get("model")
        window = model.window if model else None
        told = [f"with {model}"] if model else []
        if person is not None:
            chat = given.get("chat")
            layers = layers_for(user_id=person.pk, chat_id=chat)
            told = ["in one chat", *told] if chat else told
            level = "chat" if chat else "user"
            return Viewpoint(layers, level, window, " ".join([f"{person}", *told]))
        if group is not None:
            layers = layers_of_group(group.pk)
            return Viewpoint(layers, "group", window, " ".join([f"group {group}", *told]))
        return Viewpoint((), "instance", window, " ".join(["this policy alone", *told]))


def server_settings() -> dict[str, object]:
    """Return what holds under strategy `simple` where no policy sets it."""
    return {
        "window_size": settings.HISTORY_WINDOW,
        "max_chars_per_message": settings.MAX_CHARS_PER_MESSAGE,
    }


def effective(ours: Layer, viewpoint: Viewpoint) -> Effective:
    """Merge a policy as it is written with the others of a viewpoint.

    Where it is assigned there it stays in its place, else it comes in at the viewpoint's level.
    """
    is_there = any(layer.slug == ours.slug for layer in viewpoint.layers)
    layers = [
        Layer(layer.level, ours.slug, ours.name, ours.version, ours.values, ours.locks)
        if layer.slug == ours.slug
        else layer
        for layer in viewpoint.layers
    ]
    layers += [] if is_there else [ours]
    layers.sort(key=lambda layer: FAR_TO_NEAR.index(layer.level))
    values, sources = merge(layers, defaults=server_settings())
    # Where they cannot work the findings say so, and the fields what the policies ask for.
    with suppress(PolicyImpossible):
        values, _ = made_to_work(values, model_window=viewpoint.model_window)
    return Effective(values, sources, {(each.level, each.slug): each.name for each in layers})
