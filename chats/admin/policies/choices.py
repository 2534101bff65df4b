"""Choices of the policy form: strategies, models, providers, skills, tools."""

from django.utils.translation import gettext_lazy
from django_stubs_ext import StrOrPromise

from chats.admin.policies.form_fields import UNSET, Choices
from chats.admin.policies.labels import STRATEGY_NAMES
from chats.admin.policies.line_formats import BUILT_IN, NONE
from chats.models import StoredFile
from contextpolicy import plugins
from contextpolicy.history_providers import load_history_providers as providers_of_packages
from contextpolicy.linter.errors import list_offered_strategies
from contextpolicy.models import ModelSpec, Skill, ToolDefinition, ToolServer

NONE_OF_THEM = (NONE, gettext_lazy("None of these"))


def list_strategy_choices() -> Choices:
    """Return "unset" and the installed strategies; package strategies with their package name."""
    found = plugins.load_strategy_plugins().found
    return [
        UNSET,
        *(
            (
                name,
                f"{name} ({found[name].package})" if name in found else get_strategy_display(name),
            )
            for name in list_offered_strategies()
        ),
    ]


def list_history_provider_choices() -> Choices:
    """Return "unset", the built-in history provider, and those of installed packages."""
    found = providers_of_packages().found
    return [
        UNSET,
        (BUILT_IN, gettext_lazy("Built in: the newest messages")),
        *((name, f"{name} ({found[name].package})") for name in found),
    ]


def get_strategy_display(name: str) -> StrOrPromise:
    return STRATEGY_NAMES.get(name, name)


def list_named_models() -> Choices:
    """Return all models, each with its name and provider."""
    return [(model.slug, f"{model} ({model.provider})") for model in ModelSpec.objects.all()]


def list_model_choices() -> Choices:
    """Return the models that a policy can name, and "none"."""
    return [*list_named_models(), NONE_OF_THEM]


def list_provider_choices() -> Choices:
    """Return the providers with at least one model, and "none"."""
    slugs = ModelSpec.objects.order_by("provider").values_list("provider", flat=True).distinct()
    return [*((slug, slug) for slug in slugs), NONE_OF_THEM]


def list_file_kind_choices() -> Choices:
    """Return the kinds of files that users can attach, and "none"."""
    return [*StoredFile.Kind.choices, NONE_OF_THEM]


def list_skill_choices() -> Choices:
    """Return the skills of the instance, which a policy can name, and "none"."""
    rows = Skill.objects.filter(group=None, team_id=None)
    found = [(skill.slug, str(skill)) for skill in rows]
    return [*found, NONE_OF_THEM]


def list_tool_choices() -> Choices:
    """Return the choices of tools, and "none": per server, all tools or a single one."""
    found: list[tuple[str, StrOrPromise]] = []
    rows = list(ToolDefinition.objects.select_related("server"))
    for server in ToolServer.objects.all():
        found.append((f"{server.slug}/*", f"{server.slug}/*"))
        found += [(str(row), str(row)) for row in rows if row.server_id == server.pk]
    return [*found, NONE_OF_THEM]


def list_summariser_choices() -> Choices:
    """Return the models and methods that can write summaries."""
    return [UNSET, (BUILT_IN, gettext_lazy("No model: built-in extractor")), *list_named_models()]
