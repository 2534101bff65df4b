"""The administration's page of skills."""

from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from contextpolicy.admin.bases import DomainAdmin
from contextpolicy.admin.site import actor_of
from contextpolicy.models import Skill
from contextpolicy.skills import SkillTooLong, save_skill


class SkillAdmin(DomainAdmin):
    """Named texts. Policies attach them; one that is switched off is in no prompt."""

    refusals = (SkillTooLong,)
    list_display = ("name", "slug", "enabled", "updated_at")
    search_fields = ("name", "slug")
    fields = ("name", "slug", "text", "enabled")

    def get_readonly_fields(
        self, request: HttpRequest, obj: Skill | None = None
    ) -> tuple[str, ...]:
        """Keep the slug of a stored skill: policies name it by that."""
        return () if obj is None else ("slug",)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: policies may name it. It can be switched off."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        """Store the skill through the one function that may."""
        save_skill(skill=obj, actor=actor_of(request), now=timezone.now())
