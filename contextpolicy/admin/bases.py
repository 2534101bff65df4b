"""Bases of the administration's pages: records that are only read, refusals shown as messages."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin


# Of one choice that an address repeats, in characters.
LONGEST = 200


class DomainAdmin(ModelAdmin):
    """A page whose changes go through domain functions; their refusals are shown as messages."""

    # The refusals a domain function of this page may raise.
    refusals: tuple[type[Exception], ...] = ()
    # Fields that a refused form has again; they stand in its address, so none has words.
    chosen_again: tuple[str, ...] = ()

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show or save the form; a refusal leaves everything as it was."""

        def view() -> HttpResponse:
            return super(DomainAdmin, self).changeform_view(
                request, object_id, form_url, extra_context
            )

        return self.or_said(request, view)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Confirm or delete; a refusal leaves everything as it was."""

        def view() -> HttpResponse:
            return super(DomainAdmin, self).delete_view(request, object_id, extra_context)

        return self.or_said(request, view)

    def or_said(self, request: HttpRequest, view: Callable[[], HttpResponse]) -> HttpResponse:
        """Return the view's response, or its refusal as a message on the same page."""
        try:
            return view()
        except self.refusals as refusal:
            self.message_user(request, str(refusal), messages.ERROR)
            posted = {name: request.POST.get(name, "") for name in self.chosen_again}
            chosen = {name: said for name, said in posted.items() if 0 < len(said) <= LONGEST}
            again = f"{request.path}?{urlencode(chosen)}" if chosen else request.get_full_path()
            return HttpResponseRedirect(again)

    def get_actions(self, request: HttpRequest, *args: Any, **options: Any) -> dict[str, Any]:
        """Offer no deletion in bulk: each one is confirmed and recorded by itself.

        Later versions of Django pass where the actions are shown.
        """
        actions: dict[str, Any] = super().get_actions(request, *args, **options)
        actions.pop("delete_selected", None)
        return actions


class ReadOnlyAdmin(ModelAdmin):
    """Records that nobody changes here, superusers included."""

    list_per_page = 50
    show_full_result_count = False
    actions: tuple[str, ...] | None = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Refuse."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse."""
        return False
