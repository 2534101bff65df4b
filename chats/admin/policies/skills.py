"""The admin page of skills."""

from typing import Any, ClassVar

from django import forms
from django.http import HttpRequest
from django.utils import timezone
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy

from chats.admin.bases import DomainAdmin
from chats.admin.site import get_request_actor
from contextpolicy.models import Skill
from contextpolicy.models.skills import LONGEST_SKILL
from contextpolicy.skills import SkillNameTaken, SkillTooLong, check_skill_free, save_skill


class SkillForm(forms.ModelForm[Skill]):
    """The form of a skill. A refused name leaves the text in the form."""

    class Meta:
        model = Skill
        fields = ("name", "slug", "text", "enabled")
        labels: ClassVar = {
            "name": gettext_lazy("Name"),
            "slug": gettext_lazy("Slug"),
            "text": gettext_lazy("Text"),
            "enabled": gettext_lazy("Enabled"),
        }
        help_texts: ClassVar = {
            "text": format_lazy(
                gettext_lazy(
                    "Text that is added to prompts, at most {n:,} characters. Do not include "
                    "secrets, because models can repeat them."
                ),
                n=LONGEST_SKILL,
            )
        }

    def clean_name(self) -> str:
        """Reject a name that another skill has; raises ValidationError."""
        return self.free("name")

    def clean_slug(self) -> str:
        """Reject a slug that another skill has; raises ValidationError."""
        return self.free("slug")

    def free(self, field: str) -> str:
        """Return the value of a field if no other skill has it; raises ValidationError."""
        value: str = self.cleaned_data[field]
        try:
            check_skill_free(field, value, but=Skill.objects.filter(pk=self.instance.pk).first())
        except SkillNameTaken as error:
            raise forms.ValidationError(str(error), code=error.code) from error
        return value


class SkillAdmin(DomainAdmin):
    """Named texts that policies attach. A disabled skill is in no prompt."""

    form = SkillForm
    refusals = (SkillTooLong, SkillNameTaken)
    list_display = ("name", "slug", "enabled", "updated_at")
    search_fields = ("name", "slug")
    fields = ("name", "slug", "text", "enabled")

    def get_readonly_fields(
        self, request: HttpRequest, obj: Skill | None = None
    ) -> tuple[str, ...]:
        """Make the slug of a stored skill read-only, because policies refer to it."""
        return () if obj is None else ("slug",)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: policies may refer to it. Disable it instead."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        save_skill(skill=obj, actor=get_request_actor(request), now=timezone.now())
