"""Model server setup: connect, test, edit and disconnect servers, or try the demo."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.db.models import BooleanField, ExpressionWrapper, Q
from django.db.models.functions import Now
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext, gettext_noop, ngettext
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST
from django_htmx.http import HttpResponseClientRedirect, reselect, reswap, retarget
from redis.exceptions import RedisError

from chats.compaction import embedding, embedding_overview
from chats.ground import broker_facts
from chats.ground.refusals import NotFound, Refusal
from chats.models import ProviderAccount
from chats.providers import accounts, kinds, prices, small_account
from chats.web.account.confirming import build_confirm_form, confirm_here
from chats.web.auth import PersonRequest, format_actor, signed_in
from chats.web.server_forms import PricesForm, ServerForm, build_price_forms
from contextpolicy.models import ModelSpec

PERMISSION = "chats.change_provideraccount"
# Models per server with price fields on its page. The admin has the others.
MOST_PRICED = 30


class MayNotConnect(Refusal):
    """Only operators connect model servers. Ask your administrator."""

    code = "not_permitted"
    status = 403
    sentence = gettext_noop(
        "Your account cannot connect model servers. Ask an operator of this instance."
    )


@sensitive_post_parameters("api_key", "confirm_password", "confirm_link")
@require_http_methods(["GET", "POST"])
@signed_in
def setup(request: PersonRequest) -> HttpResponse:
    """Show connected and detected servers, or connect a server.

    Raises `MayNotConnect`.
    """
    if request.method == "GET":
        return render_setup_page(request)
    check_operator(request)
    form = ServerForm(request.POST)
    values = form.read_values()
    # The buttons of detected servers send no kind.
    values["kind"] = values["kind"] or ProviderAccount.Kind.OPENAI
    return run_server_request(request, accounts.connect_server, form=form, **values)


@sensitive_post_parameters("api_key", "confirm_password", "confirm_link")
@require_http_methods(["GET", "POST"])
@signed_in
def server(request: PersonRequest, slug: str) -> HttpResponse:
    """Show or change a server's name, address and key.

    Raises `MayNotConnect` and `NotFound`.
    """
    check_operator(request)
    account = get_connected_account(slug)
    if request.method == "GET":
        return render_setup_page(request, edited=account)
    form = ServerForm(request.POST, edited=account)
    return run_server_request(
        request,
        accounts.update_server,
        edited=account,
        form=form,
        account=account,
        **form.read_values(),
    )


@require_POST
@signed_in
def server_test(request: PersonRequest, slug: str) -> HttpResponse:
    """Reload the models of a connected server. Raises `MayNotConnect` and `NotFound`."""
    check_operator(request)
    account = get_connected_account(slug)

    def ask(**marks: Any) -> ProviderAccount:
        accounts.refresh_models(account=account, **marks)
        return account

    return run_server_request(request, ask)


@require_POST
@signed_in
def server_prices(request: PersonRequest, slug: str) -> HttpResponse:
    """Set the prices of a server's models. Raises `MayNotConnect` and `NotFound`."""
    check_operator(request)
    account = get_connected_account(slug)
    forms = build_price_forms(list_priced_models(account), sent=request.POST)
    typed = {form.model.slug: form.read_values() for form in forms}
    try:
        changed = prices.set_prices(
            account=account, typed=typed, actor=format_actor(request), now=timezone.now()
        )
    except Refusal as refusal:
        return render_setup_page(request, refusal=refusal, edited=account, priced=forms)
    words = ngettext(
        "Prices of {n:,} model changed.", "Prices of {n:,} models changed.", changed
    ).format(n=changed)
    messages.success(request, words)
    return redirect("chats:server", slug)


@sensitive_post_parameters("confirm_password", "confirm_link")
@require_POST
@signed_in
def server_disconnect(request: PersonRequest, slug: str) -> HttpResponse:
    """Remove a server and its key. Existing replies stay.

    Raises `MayNotConnect` and `NotFound`.
    """
    check_operator(request)
    account = get_connected_account(slug)
    try:
        confirm_here(request)
        accounts.delete_account(account=account, actor=format_actor(request), now=timezone.now())
    except Refusal as refusal:
        return render_setup_page(request, refusal=refusal, edited=account)
    words = gettext("{name} was disconnected, and its key was deleted.").format(name=account.name)
    messages.success(request, words)
    return redirect_to_setup(request)


@require_http_methods(["GET", "POST"])
@signed_in
def search_model(request: PersonRequest) -> HttpResponse:
    """Show the semantic search settings; choose an embedding model or rebuild the index.

    Raises `MayNotConnect` and `NotFound`.
    """
    check_operator(request)
    if request.method == "GET":
        return search_page(request)
    slug, anew = request.POST.get("model", ""), request.POST.get("act") == "anew"
    try:
        embedding.choose_embedding_model(
            slug, anew=anew, actor=format_actor(request), now=timezone.now()
        )
    except Refusal as refusal:
        return search_page(request, refusal=refusal)
    return redirect("chats:search-model")


def search_page(request: PersonRequest, *, refusal: Refusal | None = None) -> HttpResponse:
    meaning = embedding_overview.build_embedding_overview()
    # After a refusal, the choice of the request stays.
    chosen = request.POST.get("model", meaning.chosen)
    context = {"meaning": meaning, "chosen": chosen, "refusal": refusal}
    status = refusal.status if refusal else 200
    return render(request, "search_by_meaning.html", context, status=status)


def check_operator(request: PersonRequest) -> None:
    """Raise `MayNotConnect` unless the user may change providers."""
    if not request.user.has_perm(PERMISSION):
        raise MayNotConnect


def get_connected_account(slug: str) -> ProviderAccount:
    """Return a connected server. Raises `NotFound`, also for the demo model."""
    found = ProviderAccount.objects.filter(slug=slug, kind__in=kinds.SERVERS).first()
    if found is None:
        raise NotFound
    return found


def run_server_request(
    request: PersonRequest,
    ask: Callable[..., ProviderAccount],
    *,
    edited: ProviderAccount | None = None,
    form: ServerForm | None = None,
    **values: Any,
) -> HttpResponse:
    """Send a request to a model server, then show the result or the error.

    The result includes the response time. If the `values` come from a `form`, the user must have
    confirmed their identity recently.
    """
    try:
        if form is not None:
            confirm_here(request)
        begun = time.monotonic()
        account = ask(**values, actor=format_actor(request), now=timezone.now())
    except Refusal as refusal:
        return render_setup_page(request, refusal=refusal, edited=edited, form=form)
    seconds = time.monotonic() - begun
    messages.success(request, describe_server_test(account, seconds=seconds))
    return redirect_to_setup(request)


def describe_server_test(account: ProviderAccount, *, seconds: float) -> str:
    """Return the message about a successful server test."""
    models = ModelSpec.objects.filter(provider=account.slug)
    usable = models.filter(enabled=True).count()
    other = models.count() - usable
    words = (
        gettext(
            "{name} responded in {seconds:.2f} s. Chat models: {usable}. Other models, disabled:"
            " {other}."
        )
        if other
        else gettext("{name} responded in {seconds:.2f} s. Chat models: {usable}.")
    )
    return words.format(name=account.name, seconds=seconds, usable=usable, other=other)


def redirect_to_setup(request: PersonRequest) -> HttpResponse:
    """Redirect to the setup page, also after a form sent by htmx."""
    return HttpResponseClientRedirect("/setup/") if request.htmx else redirect("chats:setup")


def get_broker_warning() -> str:
    """Return a warning if the broker writes tasks to disk, otherwise an empty string."""
    try:
        return broker_facts.DISK if broker_facts.has_disk_persistence(settings.REDIS_URL) else ""
    except (RedisError, OSError):
        return ""


def render_setup_page(
    request: PersonRequest,
    *,
    refusal: Refusal | None = None,
    edited: ProviderAccount | None = None,
    form: ServerForm | None = None,
    priced: Sequence[PricesForm] | None = None,
) -> HttpResponse:
    """Render the page. Forms that are given keep their values, except a key.

    The refusal of a server's form is shown next to its button. A form sent by htmx also keeps the
    key, because htmx replaces only the refusal.
    """
    may_connect = request.user.has_perm(PERMISSION)
    if form is not None and refusal is not None:
        form.refuse(refusal)
    if edited and priced is None:
        priced = build_price_forms(list_priced_models(edited))
    context = {
        "accounts": list_connected_servers(),
        "found": accounts.find_unconnected_servers() if may_connect and not edited else [],
        "small_model": small_account.find_small_model_url() if may_connect and not edited else "",
        "small_model_name": small_account.NAME,
        "may_connect": may_connect,
        "broker_on_disk": get_broker_warning() if may_connect and not edited else "",
        "confirm": build_confirm_form(request),
        "refusal": refusal,
        "at_button": form is not None,
        "edited": edited,
        "form": form or ServerForm(edited=edited),
        "priced": priced,
    }
    if refusal is not None and request.htmx:
        # Status 200, because htmx would log an error status to the console.
        response = render(request, "setup.html", context)
        place = "#server-refusal" if form is not None else "#notices"
        return reswap(retarget(reselect(response, "#refusal"), place), "innerHTML")
    return render(request, "setup.html", context, status=refusal.status if refusal else 200)


def list_priced_models(account: ProviderAccount) -> list[ModelSpec]:
    """Return the enabled models whose prices are shown on their server's page."""
    return list(ModelSpec.objects.filter(provider=account.slug, enabled=True)[:MOST_PRICED])


def list_connected_servers() -> list[tuple[ProviderAccount, list[ModelSpec]]]:
    rows = ProviderAccount.objects.filter(enabled=True).annotate(
        is_paused=ExpressionWrapper(Q(paused_until__gt=Now()), output_field=BooleanField())
    )
    models: dict[str, list[ModelSpec]] = {}
    for model in ModelSpec.objects.filter(enabled=True):
        models.setdefault(model.provider, []).append(model)
    return [(row, models.get(row.slug, [])) for row in rows]
