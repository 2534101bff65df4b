"""Fields of pages: values reach the domain as typed, and a refusal marks its field."""

import pytest
from django import forms
from django.core.files.uploadedfile import SimpleUploadedFile

from chats.ground.refusals import Refusal
from chats.web.forms import (
    NOT_A_NUMBER,
    OptionField,
    OptionsField,
    PageForm,
    TextField,
    UploadField,
    WholeNumberField,
)


class NameRefused(Refusal):
    code = "name_refused"
    status = 422
    sentence = "Sample of a refusal"
    param = "name"


class SampleForm(PageForm):
    name = TextField(label="Name", max_length=5, help_text="At most 5 characters.")
    text = TextField(widget=forms.Textarea)
    kind = OptionField(choices=[("a", "First")])
    kinds = OptionsField(choices=[("a", "First")], widget=forms.CheckboxSelectMultiple)
    number = WholeNumberField(min_value=1, max_value=9)
    file = UploadField()


def test_the_domain_gets_values_that_the_browser_would_refuse() -> None:
    empty = SimpleUploadedFile("a.txt", b"")
    sent = {"name": " too long ", "text": "a\r\nb\x00", "kind": "b", "kinds": ["a", "c"]}
    form = SampleForm({**sent, "number": "99"}, {"file": empty})
    assert form.read_values() == {**sent, "text": "a\nb\x00", "number": 99, "file": empty}
    missing: dict[str, object] = {"name": "", "text": "", "kind": "", "kinds": [], "file": None}
    assert SampleForm({}).read_values() == {**missing, "number": NOT_A_NUMBER}


def test_numbers_are_whole_or_refused_by_every_limit() -> None:
    field = WholeNumberField()
    typed = ("12", " 7 ", "0", "", "-3", "1.5", "1234567890", "\u0663")
    assert [field.clean(text) for text in typed] == [12, 7, 0, *[NOT_A_NUMBER] * 5]
    assert [WholeNumberField(empty=4).clean(text) for text in ("", "x")] == [4, NOT_A_NUMBER]


def test_a_refusal_ends_the_context_and_marks_its_field() -> None:
    form = SampleForm({"name": "Ann"})
    reached = False
    with form.catch_refusal():
        raise NameRefused
    with form.catch_refusal():
        reached = True
    assert reached
    assert (form.status, form.refusal and form.refusal.code) == (422, "name_refused")
    assert 'aria-invalid="true"' in form["name"].as_field_group()
    assert "aria-invalid" not in form["text"].as_field_group()
    # Another form of the class is not marked.
    assert "aria-invalid" not in SampleForm()["name"].as_field_group()
    with pytest.raises(ZeroDivisionError), form.catch_refusal():
        raise ZeroDivisionError


def test_a_field_has_its_label_its_limits_and_its_help() -> None:
    html = SampleForm()["name"].as_field_group()
    assert '<label class="field__label" for="id_name">Name</label>' in html
    assert 'class="input"' in html
    assert 'maxlength="5"' in html
    assert " required" in html
    assert 'aria-describedby="id_name_helptext"' in html
    assert '<div class="field__help" id="id_name_helptext">At most 5 characters.</div>' in html
    kinds = SampleForm()["kinds"].as_field_group()
    assert '<fieldset class="choices"' in kinds
    assert 'class="input"' not in kinds
