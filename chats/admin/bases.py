"""Base classes of the admin pages: read-only records, and refusals shown as messages."""

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


# Maximum characters of one choice that is repeated in the URL.
LONGEST = 200
# Attribute of a request whose form was refused.
REFUSED = "palimpsest_form_refused"
# Lookups that the filters of a list may use.
FILTER_LOOKUPS = frozenset(
    {
        "exact",
        "in",
        "isnull",
        "gt",
        "gte",
        "lt",
        "lte",
        "year",
        "month",
        "day",
        "id__exact",
        "id__in",
    }
)


class FilteredAdmin(ModelAdmin):
    """A list whose URL can only filter by the filters that the list shows."""

    # Further lookups that links of other pages use.
    linked_lookups: frozenset[str] = frozenset()

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Return True for lookups of the list's filters, its date hierarchy and links to it."""
        # Django allows every field of the model. The rows found would then reveal texts and keys
        # letter by letter.
        parameters, fields = set(self.linked_lookups), set[str]()
        for listed in self.get_list_filter(request):
            if isinstance(listed, str):
                fields.add(listed)
            elif isinstance(listed, (list, tuple)):
                fields.add(str(listed[0]))
            else:
                parameters.add(str(getattr(listed, "parameter_name", "")))
        if self.date_hierarchy:
            fields.add(self.date_hierarchy)
        return lookup in parameters | fields or any(
            lookup.startswith(f"{name}__") and lookup.removeprefix(f"{name}__") in FILTER_LOOKUPS
            for name in fields
        )


class DomainAdmin(FilteredAdmin):
    """An admin page that saves through domain functions and shows their refusals as messages."""

    # The refusals that a domain function of this page may raise.
    refusals: tuple[type[Exception], ...] = ()
    # Refusals that a subclass handles by calling the view again.
    repeated: tuple[type[Exception], ...] = ()
    # Fields whose values are kept after a refusal. They are put into the URL, so none may be free
    # text.
    chosen_again: tuple[str, ...] = ()

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show or save the form. A refusal is shown above the form and changes nothing."""

        def view() -> HttpResponse:
            if self.saves_nothing(request):
                # Without Django's transaction: on SQLite, it would block all writers until the page
                # is complete.
                shown: HttpResponse = self._changeform_view(  # type: ignore[attr-defined]  # the stubs leave it out
                    request, object_id, form_url, extra_context
                )
                return shown
            return super(DomainAdmin, self).changeform_view(
                request, object_id, form_url, extra_context
            )

        def save_or_show_again() -> HttpResponse:
            try:
                return view()
            except self.refusals as refusal:
                if request.method != "POST" or isinstance(refusal, self.repeated):
                    raise
                self.tell_refusal(request, refusal)
                setattr(request, REFUSED, True)
                return view()

        return self.or_said(request, save_or_show_again)

    def saves_nothing(self, request: HttpRequest) -> bool:
        """Return True if a submitted form is only shown again, never saved."""
        return False

    def get_form(
        self,
        request: HttpRequest,
        obj: Any = None,
        change: bool = False,  # noqa: FBT001, FBT002 - as in the method of Django that this overrides
        **kwargs: Any,
    ) -> Any:
        """Return the form. After a refusal, it keeps its values and cannot be saved."""
        form = super().get_form(request, obj, change=change, **kwargs)
        if not getattr(request, REFUSED, False):
            return form
        return type(form.__name__, (form,), {"is_valid": lambda _: False})

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the confirmation, or delete. A refusal is shown as a message and changes nothing."""

        def view() -> HttpResponse:
            return super(DomainAdmin, self).delete_view(request, object_id, extra_context)

        return self.or_said(request, view)

    def or_said(self, request: HttpRequest, view: Callable[[], HttpResponse]) -> HttpResponse:
        """Return the view's response. A refusal is shown on the same page."""
        try:
            return view()
        except self.refusals as refusal:
            self.tell_refusal(request, refusal)
            posted = {name: request.POST.get(name, "") for name in self.chosen_again}
            chosen = {name: said for name, said in posted.items() if 0 < len(said) <= LONGEST}
            again = f"{request.path}?{urlencode(chosen)}" if chosen else request.get_full_path()
            return HttpResponseRedirect(again)

    def tell_refusal(self, request: HttpRequest, refusal: Exception) -> None:
        """Show a refusal as a message."""
        sentence = getattr(refusal, "localized", str(refusal))
        code = getattr(refusal, "code", "")
        self.message_user(request, sentence, messages.ERROR, extra_tags=code)

    def get_actions(self, request: HttpRequest, *args: Any, **options: Any) -> dict[str, Any]:
        """Remove bulk deletion, because each deletion is confirmed and recorded separately.

        Accepts further arguments, because later versions of Django also pass the location of the
        actions.
        """
        actions: dict[str, Any] = super().get_actions(request, *args, **options)
        actions.pop("delete_selected", None)
        return actions


class ReadOnlyAdmin(FilteredAdmin):
    """Records that cannot be changed here, not even by superusers."""

    list_per_page = 50
    show_full_result_count = False
    actions: tuple[str, ...] | None = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False
