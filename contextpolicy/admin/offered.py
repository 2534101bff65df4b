"""Choices of the policy form: strategies, models, providers, skills."""

from contextpolicy import plugins
from contextpolicy.admin.fields import UNSET, Choices
from contextpolicy.admin.words import STRATEGY_NAMES
from contextpolicy.admin.written import BUILT_IN, NONE
from contextpolicy.history_providers import installed as providers_of_packages
from contextpolicy.linter.errors import offered_strategies
from contextpolicy.models import ModelSpec, Skill

NONE_OF_THEM = (NONE, "None of them")


def strategies() -> Choices:
    """Return the strategies that exist, those of packages with the package."""
    found = plugins.installed().plugins
    return [
        UNSET,
        *(
            (name, f"{name} ({found[name].package})" if name in found else strategy_name(name))
            for name in offered_strategies()
        ),
    ]


def history_providers() -> Choices:
    """Return the built-in history provider, and those of packages with the package."""
    found = providers_of_packages().providers
    return [
        UNSET,
        (BUILT_IN, "Built in: the newest messages"),
        *((name, f"{name} ({found[name].package})") for name in found),
    ]


def strategy_name(name: str) -> str:
    """Name a strategy that ships, as people see it."""
    return STRATEGY_NAMES.get(name, name)


def models() -> Choices:
    """Return the models a policy can name, and the choice of none."""
    found = [(model.slug, f"{model} ({model.provider})") for model in ModelSpec.objects.all()]
    return [*found, NONE_OF_THEM]


def providers() -> Choices:
    """Return the providers a policy can name, those that have a model, and the choice of none."""
    slugs = ModelSpec.objects.order_by("provider").values_list("provider", flat=True).distinct()
    return [*((slug, slug) for slug in slugs), NONE_OF_THEM]


def skills_offered() -> Choices:
    """Return the skills a policy can name, and the choice of none."""
    found = [(skill.slug, str(skill)) for skill in Skill.objects.all()]
    return [*found, NONE_OF_THEM]


def summarisers() -> Choices:
    """Return the choices of what writes summaries."""
    return [UNSET, (BUILT_IN, "No model: pick sentences from the messages"), *models()]
