"""Forms of the pages: fields that pass typed values to the domain, and refusals at a form.

The domain validates all values, because the API and the commands use it too, and refuses them with
a stable code. The fields state the same limits to the browser as HTML attributes.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.forms.renderers import TemplatesSetting
from django.template.defaultfilters import floatformat
from django.utils.functional import lazy
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chats.ground.refusals import Refusal

# Given to the domain for text that is not a whole number. Every limit refuses it.
NOT_A_NUMBER = -1


format_html_lazy: Callable[..., Any] = lazy(format_html, SafeString)


def format_code(text: str) -> SafeString:
    """Return the text as an HTML `code` element."""
    return format_html("<code>{}</code>", text)


def build_text_input() -> forms.TextInput:
    """Return a one-line input for text in either direction, without suggestions."""
    return forms.TextInput(attrs={"dir": "auto", "autocomplete": "off"})


class PageRenderer(TemplatesSetting):
    """Renders `{{ form.field.as_field_group }}` with the markup of the pages."""

    field_template_name = "forms/field.html"


class DomainField(forms.Field):
    """A field whose values the domain validates."""

    def clean(self, value: Any) -> Any:
        """Return the typed value without validation."""
        return self.to_python(value)


class TextField(DomainField, forms.CharField):
    """Text as typed. Line ends become LF, because browsers send CRLF."""

    def __init__(self, **options: Any) -> None:
        super().__init__(strip=False, **options)

    def to_python(self, value: Any) -> str:
        return str(super().to_python(value)).replace("\r\n", "\n")


class WholeNumberField(DomainField, forms.IntegerField):
    """A whole number of at most nine digits; `NOT_A_NUMBER` for any other text.

    `empty`: the number for an empty field.
    """

    def __init__(self, *, empty: int = NOT_A_NUMBER, **options: Any) -> None:
        super().__init__(**options)
        self.empty = empty

    def to_python(self, value: Any) -> int:
        text = "" if value is None else str(value).strip()
        if text.isascii() and text.isdigit() and len(text) < 10:
            return int(text)
        return NOT_A_NUMBER if text else self.empty


class OptionField(DomainField, forms.ChoiceField):
    """One of several options. Accepts any text, including one that is not offered."""


class OptionsField(DomainField, forms.MultipleChoiceField):
    """Some of several options. Accepts any values, including ones that are not offered."""


class UploadField(forms.FileField):
    """A file, or None. Domain functions refuse missing and unusable files, not this field."""

    def clean(self, data: Any, initial: Any = None) -> UploadedFile[bytes] | None:
        return data or None


def add_input_class(form: forms.BaseForm) -> None:
    """Give the form's widgets the CSS class of inputs, except check boxes and radio buttons."""
    for field in form.fields.values():
        if not isinstance(field.widget, (forms.CheckboxInput, forms.RadioSelect)):
            field.widget.attrs.setdefault("class", "input")


class PageForm(forms.Form):
    """A form of a page. `refusal`: why the domain refused the values."""

    default_renderer = PageRenderer
    # The ids of the fields, with the name in place of `%s`.
    id_format = "id_%s"
    refusal: Refusal | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", "auto_id": self.id_format, **options})
        add_input_class(self)

    def describe(self, field: str, text: str, **numbers: int) -> None:
        """Set the help text of a field: `text` with numbers in the format of the language."""
        written = {name: floatformat(number, "0g") for name, number in numbers.items()}
        self.fields[field].help_text = text % written

    def read_values(self) -> dict[str, Any]:
        """Return the typed values by field. Raises `ValueError` if a field refused its value."""
        if not self.is_valid():
            raise ValueError(f"not values of {type(self).__name__}: {self.errors.as_json()}")
        return self.cleaned_data

    def catch_refusal(self) -> "RefusalCatcher":
        """Return a context that ends at a refusal of the domain and keeps it in `refusal`."""
        return RefusalCatcher(self.refuse)

    def refuse(self, refusal: Refusal, *, field: str = "") -> None:
        """Keep the refusal and mark its field, so that the page focuses it.

        `field`: the name of the field, if it differs from the parameter of the refusal.
        """
        self.refusal = refusal
        name = field or refusal.param
        if name in self.fields:
            attributes = {"aria-invalid": "true", "aria-errormessage": "refusal"}
            self.fields[name].widget.attrs.update(attributes)

    @property
    def status(self) -> int:
        """The HTTP status of the page that shows the form."""
        return self.refusal.status if self.refusal else 200


class RefusalCatcher:
    """A context that ends at a refusal of the domain and passes it to `refuse`."""

    def __init__(self, refuse: Callable[[Refusal], None]) -> None:
        self.refuse = refuse

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if isinstance(error, Refusal):
            self.refuse(error)
            return True
        return False
