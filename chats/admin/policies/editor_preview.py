"""The policy editor with previews on chats. Message text is shown only for the user's own chats."""

import uuid
from typing import Any, NamedTuple, cast

from django import forms
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy

from chats.admin.policies.charts import build_token_chart
from chats.admin.policies.editor import ContextPolicyAdmin
from chats.admin.policies.policy_form import PREVIEW, TRIAL, PolicyForm
from chats.admin.policies.previews import build_side_context
from chats.admin.site import get_request_actor
from chats.admin.words import render_balance_table
from chats.counts import balances
from chats.counts.room_used import measure_room_used
from chats.ground.refusals import Refusal
from chats.models import Chat
from chats.record.access import get_visible_chats
from chats.simulation import evaluating, radius, trial
from chats.simulation.evaluating import NothingToEvaluate, TooManyEvaluations
from chats.simulation.preview import (
    Preview,
    Side,
    build_empty_chat,
    compose_chat_sides,
    describe_chat_change,
    diff_prompts,
    find_previewable_chat,
    preview_proposal,
)
from chats.simulation.proposals import (
    ASSIGNED,
    GROUP,
    REMOVED,
    PolicyProposal,
    build_group_proposal,
)
from chats.simulation.sampling import SAMPLE, Sampled, sample_chats
from contextpolicy.models import ContextPolicy, Evaluation

EMPTY, LONGEST, SAMPLED, COUNTED = "empty", "longest", "sample", "all"
EVALUATE = "_evaluate"
CHATS_OFFERED = 20
CHATS_COMPARED = 20
GROUPS_OFFERED = 200
PLACES = [
    ("instance", gettext_lazy("everyone, instead of the current policy")),
    ("chat", gettext_lazy("this chat")),
    (ASSIGNED, gettext_lazy("current assignments only")),
    (REMOVED, gettext_lazy("no chats (as if the policy were removed)")),
]


class PreviewRefusal(NamedTuple):
    """The reason for a missing preview: a stable code and a localized sentence."""

    code: str
    sentence: str


class PreviewForm(forms.Form):
    """Form for the chat and the level of a policy preview."""

    prefix = "try"
    chat = forms.ChoiceField(label=gettext_lazy("Chat"), required=False)
    other = forms.UUIDField(
        label=gettext_lazy("Chat ID"),
        required=False,
        help_text=gettext_lazy("For another user’s chat, only numbers are shown."),
    )
    place = forms.ChoiceField(label=gettext_lazy("applied to"), required=False)
    state = forms.CharField(widget=forms.HiddenInput, required=False, max_length=90)

    def __init__(self, *args: Any, own: list[Chat], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        place = self.fields["place"]
        if isinstance(place, forms.ChoiceField):
            groups = Group.objects.order_by("name")[:GROUPS_OFFERED]
            label = gettext("the members of {group}")
            members = [(f"{GROUP}:{each.pk}", label.format(group=each.name)) for each in groups]
            label = gettext("no chats of {group} (as if the policy were removed from this group)")
            without = [(f"{REMOVED}:{each.pk}", label.format(group=each.name)) for each in groups]
            place.choices = [*PLACES, *members, *without]
        chats = [(str(chat.pk), chat.title or gettext("Untitled chat")) for chat in own]
        found = self.fields["chat"]
        if isinstance(found, forms.ChoiceField):
            found.choices = [
                *chats,
                (EMPTY, gettext("A chat without messages")),
                (LONGEST, gettext("The {n} longest chats (numbers only)").format(n=CHATS_COMPARED)),
                (SAMPLED, gettext("{n} random chats (number of changed prompts)").format(n=SAMPLE)),
                (COUNTED, gettext("All chats in use (counted in the background)")),
            ]


class PreviewedPolicyAdmin(ContextPolicyAdmin):
    """The policy editor with previews of unsaved policies on chats."""

    parts = (*ContextPolicyAdmin.parts, "preview")
    refusals = (*ContextPolicyAdmin.refusals, NothingToEvaluate, TooManyEvaluations)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show or save the form, start a shadow evaluation, or write a trial summary.

        The summary's model call runs here: after the form's transaction, before the page is
        rendered.
        """
        if request.method == "POST" and EVALUATE in request.POST and object_id:
            return self.or_said(request, lambda: self.evaluated(request, object_id))
        response = super().changeform_view(request, object_id, form_url, extra_context)
        if TRIAL in request.POST and isinstance(response, TemplateResponse):
            context = response.context_data or {}
            if "trial_of" in context:
                chat, proposal = context["trial_of"]
                context |= build_trial_context(request, chat, proposal)
            response.context_data = context
        return response

    def evaluated(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Start the evaluation of the newest draft and redirect to its page.

        Raises the errors of `evaluating.start_evaluation`, and PermissionDenied if the user may
        not change the policy.
        """
        policy = self.get_object(request, object_id)
        if policy is None or not self.has_change_permission(request, policy):
            raise PermissionDenied
        wanted = request.POST[EVALUATE]
        row = evaluating.start_evaluation(
            policy=policy,
            number=int(wanted[:9]) if wanted.isdecimal() else 0,
            # A policy without assignments would only be compared with itself.
            place="assigned" if policy.assignments.exists() else "instance",
            actor=get_request_actor(request),
            now=timezone.now(),
        )
        address = reverse("admin:contextpolicy_evaluation_compare", args=[row.pk])
        return HttpResponseRedirect(address)

    def editor_context(
        self, request: HttpRequest, form: PolicyForm, policy: ContextPolicy | None
    ) -> dict[str, Any]:
        context = super().editor_context(request, form, policy)
        own = get_visible_chats(user=request.user).filter(team=None)
        offered = list(own.order_by("-updated_at")[:CHATS_OFFERED])
        asks = bool({PREVIEW, TRIAL} & request.POST.keys())
        tried = PreviewForm(request.POST if request.method == "POST" else None, own=offered)
        context |= {"try": tried, "asks_preview": asks}
        if policy is not None:
            rows = Evaluation.objects.filter(policy=policy, state=Evaluation.State.OPEN)
            context |= {"may_evaluate": True, "evaluation": rows.select_related("version").first()}
        context["brought"] = render_policy_balances(policy)
        context["room_warning"] = measure_room_used(policy).warning if policy else ""
        context["preview_template"] = "admin/contextpolicy/contextpolicy/_preview.html"
        if asks:
            context |= self.tried(request, form, tried)
        return context

    def tried(self, request: HttpRequest, form: PolicyForm, tried: PreviewForm) -> dict[str, Any]:
        """Return the template values of the requested preview.

        Nothing is stored, except that a preview of all chats starts a count.
        """
        errors = list_form_errors(form)
        if errors or not tried.is_valid():
            refused = PreviewRefusal("no_chat_chosen", gettext("Choose a chat, or enter its ID."))
            if errors:
                refused = PreviewRefusal(
                    "form_errors", gettext("Fix the highlighted fields first.")
                )
            return {"preview_refused": refused}
        proposal = build_form_proposal(form, place=tried.cleaned_data["place"])
        wanted, other = tried.cleaned_data["chat"], tried.cleaned_data["other"]
        now = timezone.now()
        if not other and wanted == LONGEST:
            rows = Chat.objects.filter(deleted_at=None, team=None, active_branch__isnull=False)
            chats = rows.select_related("model", "owner").order_by("-active_branch__last_seq")
            sides = compose_chat_sides(list(chats[:CHATS_COMPARED]), proposal=proposal, now=now)
            return {"compared": [build_comparison_row(request, *each) for each in sides]}
        if not other and wanted == SAMPLED:
            reach = sample_chats(proposal=proposal, now=now)
            worst = [
                build_comparison_row(request, each.chat, each.now, each.proposed)
                for each in reach.worst
            ]
            return {"sampled": reach, "bounds": format_share_interval(reach), "compared": worst}
        if not other and wanted == COUNTED:
            return self.counted(request, form, proposal)
        if not other and wanted in ("", EMPTY):
            chat, branch = build_empty_chat(request.user, now=now)  # type: ignore[arg-type]  # signed in
            found = preview_proposal(chat, proposal=proposal, now=now, branch=branch)
            return preview_context(found, tried, with_words=True)
        chat_id = other or uuid.UUID(wanted)
        one = find_previewable_chat(chat_id)
        if one is None:
            sentence = gettext(
                "This chat does not exist, or a team replies in it. Choose another chat."
            )
            return {"preview_refused": PreviewRefusal("unknown_chat", sentence)}
        found = preview_proposal(one, proposal=proposal, now=now)
        is_own = one.owner_id == request.user.pk
        context = preview_context(found, tried, with_words=is_own)
        return context | ({"trial_of": (one, proposal)} if is_own else {})

    def counted(
        self, request: HttpRequest, form: PolicyForm, proposal: PolicyProposal
    ) -> dict[str, Any]:
        """Start a count of the chats that the edited policy would change.

        Returns the template values.
        """
        policy = ContextPolicy.objects.filter(pk=form.instance.pk).first()
        if policy is None:
            sentence = gettext(
                "This policy is not saved yet. Save it as a draft, then count its chats."
            )
            return {"preview_refused": PreviewRefusal("policy_not_saved", sentence)}
        places = {
            "instance": "instance",
            ASSIGNED: "assigned",
            GROUP: "instance",
            REMOVED: "removed",
        }
        if proposal.level not in places:
            sentence = gettext(
                "A count compares many chats. Choose everyone, current assignments or a group "
                "instead of one chat."
            )
            return {"preview_refused": PreviewRefusal("one_chat", sentence)}
        row = radius.start_radius_count(
            policy=policy,
            values=form.policy_values,
            locks=form.policy_locks,
            place=places[proposal.level],
            group=Group.objects.filter(pk=proposal.group_id or 0).first(),
            actor=get_request_actor(request),
            now=timezone.now(),
        )
        return {"counted": row}


def build_form_proposal(form: PolicyForm, *, place: str) -> PolicyProposal:
    newest = form.newest
    values: dict[str, Any] = {
        "slug": form.instance.slug or "-new-",
        "name": form.instance.name or gettext("This policy"),
        "version": newest.number if newest else 0,
        "values": form.policy_values,
        "locks": form.policy_locks,
    }
    level, _, group = place.partition(":")
    if level == GROUP:
        return build_group_proposal(int(group), **values)
    if group:
        return PolicyProposal(level=level, group_id=int(group), **values)
    return PolicyProposal(level=level or "instance", **values)


def build_trial_context(
    request: HttpRequest, chat: Chat, proposal: PolicyProposal
) -> dict[str, Any]:
    """Write a trial summary and return its template values."""
    user = cast(User, request.user)
    try:
        made = trial.run_trial(user=user, chat=chat, proposal=proposal, clock=timezone.now)
    except Refusal as refusal:
        return {"trial_refused": refusal.localized}
    cost = (
        gettext("unknown: the model has no price, or the provider reported no usage")
        if made.cost.unknown
        else balances.format_money(made.cost)
    )
    return {"trial": made, "trial_cost": cost}


def render_policy_balances(policy: ContextPolicy | None) -> SafeString | str:
    """Return the table of compaction savings by version. Empty if there are no statistics."""
    found = balances.list_policy_balances(policy.slug) if policy else []
    return (
        render_balance_table([(f"v{number}", balance) for number, balance in found])
        if found
        else ""
    )


def list_form_errors(form: PolicyForm) -> list[str]:
    return [warning.sentence for warning in form.warnings if warning.level == "error"] + [
        str(error) for name in form.unread for error in form.errors.get(name, ())
    ]


def preview_context(found: Preview, tried: PreviewForm, *, with_words: bool) -> dict[str, Any]:
    """Return the template values of a preview, without text from other users' chats."""
    lines, is_more = diff_prompts(found) if with_words else ([], False)
    return {
        "preview": found,
        "sides": [
            build_side_context(found.now, found.estimate_now),
            build_side_context(found.proposed, found.estimate_proposed),
        ],
        "chart": build_token_chart(found.course_now, found.course_proposed),
        "moved_on": describe_chat_change(tried.cleaned_data["state"], found.token),
        "with_words": with_words,
        "diff": [(line[:1], line) for line in lines],
        "diff_is_more": is_more,
    }


def format_share_interval(found: Sampled) -> str:
    """Return the confidence interval of the share of chats that change.

    This is one number if both ends are equal.
    """
    low, high = (f"{share:.0%}" for share in (found.low, found.high))
    return low if low == high else gettext("between {low} and {high}").format(low=low, high=high)


def build_comparison_row(
    request: HttpRequest, chat: Chat, now: Side, proposed: Side
) -> dict[str, Any]:
    """Return one row of the comparison table. Only the reader's own chats show their titles."""
    is_own = chat.owner_id == request.user.pk
    return {
        "name": (chat.title or gettext("Untitled chat")) if is_own else str(chat.pk),
        "now": now,
        "proposed": proposed,
        "changes": now.outcome != proposed.outcome,
    }
