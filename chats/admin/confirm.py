"""Confirmation pages for admin actions."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

from django.contrib.admin import helpers
from django.contrib.messages import ERROR, INFO
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext, ngettext

from chats.admin.bases import ModelAdmin
from chats.admin.forms import AdminForm
from chats.ground.refusals import Refusal

Row = TypeVar("Row", bound=Model)
# The number of rows that the page names if all rows of a list were selected.
MOST_NAMED = 50
# The number of rows that one request changes, and of refusals that it lists.
MOST_ROWS = 500
MOST_REFUSALS = 50


def render_confirmation(
    page: ModelAdmin,
    request: HttpRequest,
    rows: QuerySet[Any],
    *,
    title: str,
    sentence: str,
    form: type[AdminForm] | None = None,
) -> HttpResponse | None:
    """Return the confirmation page, or None once the user has confirmed.

    `form`: its fields are part of the page. The page returns with the entered values if one of
    them is refused. If the user selected all rows in a list, the page does not repeat their ids,
    because a request has a limited number of fields. It returns if their number has changed.
    """
    is_all = request.POST.get("select_across") == "1"
    count = rows.count() if is_all else 0
    is_confirmed = request.POST.get("confirmed") == "yes"
    is_confirmed &= not is_all or request.POST.get("count", str(count)) == str(count)
    shown = form(request.POST if is_confirmed else None) if form else None
    if is_confirmed and (shown is None or shown.is_valid()):
        return None
    opts = page.opts
    found = list(rows[:MOST_NAMED] if is_all else rows)
    values = {
        **page.admin_site.each_context(request),
        "title": title,
        "sentence": sentence,
        "form": shown,
        "opts": opts,
        "back": reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist"),
        "names": [str(row) for row in found],
        # One key stands for the list: Django expects at least one.
        "keys": [str(row.pk) for row in (found[:1] if is_all else found)],
        "is_all": is_all,
        "count": count,
        "more": max(count - len(found), 0),
        "box": helpers.ACTION_CHECKBOX_NAME,
        "action": request.POST["action"],
    }
    return TemplateResponse(request, "admin/chats/confirm.html", values)


def apply_confirmed(
    page: ModelAdmin,
    request: HttpRequest,
    rows: QuerySet[Any],
    *,
    title: str,
    sentence: str,
    action: Callable[[Any], object],
    done: str,
    targets: QuerySet[Any] | None = None,
    name: Callable[[Any], str] = str,
    form: type[AdminForm] | None = None,
) -> HttpResponse | None:
    """Return the confirmation page or, once confirmed, run the action on each row.

    `rows`: rows of the page's model, which the page lists. `targets`: the rows to change, if they
    differ from `rows`.
    """
    asked = render_confirmation(page, request, rows, title=title, sentence=sentence, form=form)
    if asked is None:
        found = rows if targets is None else targets
        apply_to_rows(page, request, found, action=action, done=done, name=name)
    return asked


def apply_to_rows(
    page: ModelAdmin,
    request: HttpRequest,
    rows: Iterable[Row],
    *,
    action: Callable[[Row], object],
    done: str,
    name: Callable[[Row], str] = str,
) -> None:
    """Run the action on each row of at most 500. Refused rows do not change.

    Shows one message with the number of changed rows, tagged with the name of the action, and one
    for each of the first 50 refused rows, tagged with the code of the refusal. If there are more
    than 500 rows, none changes.
    """
    # A query set that is not sliced would load all of its rows.
    most = MOST_ROWS + 1
    found = list(rows[:most] if isinstance(rows, QuerySet) else islice(rows, most))
    if len(found) > MOST_ROWS:
        words = gettext(
            "The selection has more than {n:,} rows, which is the limit for one action. Nothing "
            "was changed. Filter the list, then repeat the action for each part."
        )
        page.message_user(request, words.format(n=MOST_ROWS), ERROR, "too_many_rows")
        return
    changed: list[Row] = []
    refused: list[tuple[Row, Refusal]] = []
    for row in found:
        try:
            action(row)
        except Refusal as error:
            refused.append((row, error))
        else:
            changed.append(row)
    if changed:
        rows_words = ngettext("{n:,} row", "{n:,} rows", len(changed)).format(n=len(changed))
        subject = name(changed[0]) if len(changed) == 1 else rows_words
        message = format_row_message(subject, done)
        page.message_user(request, message, INFO, request.POST["action"])
    for row, refusal in refused[:MOST_REFUSALS]:
        message = format_row_message(name(row), refusal.localized)
        page.message_user(request, message, ERROR, refusal.code)
    more = len(refused) - MOST_REFUSALS
    if more > 0:
        words = ngettext("{n:,} more row was refused.", "{n:,} more rows were refused.", more)
        page.message_user(request, words.format(n=more), ERROR, "more_refused")


def format_row_message(name: str, message: str) -> str:
    return gettext("{name}: {message}").format(name=name, message=message)
