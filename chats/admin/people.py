"""Admin pages of users and groups. Owners grant roles; the permissions of a role are fixed."""

from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, ngettext

from chats.actions import inactive_users
from chats.admin.forms import AdminForm
from chats.admin.reauthentication import FreshSignInAdmin, is_recently_confirmed, sign_in_again
from chats.admin.site import get_request_actor
from chats.ground.refusals import NotFound
from chats.people import accounts, invitations, keys, sessions
from chats.record import quotas
from contextpolicy import roles
from contextpolicy.blast import BlastRadiusNeeded
from contextpolicy.two_persons import SecondPersonNeeded
from contextpolicy.wording import join_items

if TYPE_CHECKING:
    DjangoUserAdmin = UserAdmin[User]
else:
    DjangoUserAdmin = UserAdmin


class InvitationForm(AdminForm):
    """Form for the account of an invited user."""

    username = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=150,
        help_text=gettext_lazy(
            "The user signs in with this name. Up to 150 characters: letters, digits and @ . + - _"
        ),
    )
    role = forms.ChoiceField(
        label=gettext_lazy("Role"),
        choices=[(name, name) for name in roles.ROLES],
        initial=roles.USER,
    )
    groups = forms.ModelMultipleChoiceField(
        label=gettext_lazy("Groups"),
        queryset=Group.objects.none(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy(
            "Groups decide which policies apply to the user. If several apply, the strictest "
            "limits win."
        ),
    )

    def __init__(self, data: Any = None) -> None:
        super().__init__(data)
        field = self.fields["groups"]
        if isinstance(field, forms.ModelMultipleChoiceField):
            field.queryset = Group.objects.exclude(name__in=roles.ROLES).order_by("name")

    def asked(self) -> dict[str, Any]:
        """Return the user name, and the groups including the group of the role."""
        role = Group.objects.filter(name=self.cleaned_data["role"])
        groups = [*role, *self.cleaned_data["groups"]]
        return {"username": self.cleaned_data["username"], "groups": groups}


class PersonAdmin(FreshSignInAdmin, DjangoUserAdmin):
    """Accounts and their roles. Only superusers can change a superuser."""

    refusals = (
        roles.LastOwner,
        roles.NameInvisible,
        roles.UsernameTaken,
        SecondPersonNeeded,
        BlastRadiusNeeded,
        NotFound,
    )
    list_display = ("username", "first_name", "last_name", "held_roles", "is_active")
    list_filter = ("is_active", "groups")
    readonly_fields = ("last_login", "date_joined", "is_staff", "usage")

    def get_urls(self) -> list[URLPattern]:
        page = self.admin_site.admin_view(self.invite)
        return [path("invite/", page, name="auth_user_invite"), *super().get_urls()]

    def invite(self, request: HttpRequest) -> HttpResponse:
        """Create or renew an invitation, and list the pending invitations.

        Raises PermissionDenied without the permission to add users.
        """
        if not self.has_add_permission(request):
            raise PermissionDenied
        if not is_recently_confirmed(request):
            return sign_in_again(request)
        return self.or_said(request, lambda: self.invitations_page(request))

    def invitations_page(self, request: HttpRequest) -> HttpResponse:
        """Show the form and the pending invitations, with the link for a new invitation."""
        now, actor = timezone.now(), get_request_actor(request)
        is_new = request.method == "POST" and "renew" not in request.POST
        form = InvitationForm(request.POST if is_new else None)
        made: tuple[User, str] | None = None
        if request.method == "POST" and not is_new:
            number = request.POST["renew"][:9]
            made = invitations.renew_invitation(
                user_id=int(number) if number.isdecimal() else 0, actor=actor, now=now
            )
        elif is_new and form.is_valid():
            try:
                made = invitations.invite_user(**form.asked(), actor=actor, now=now)
            except invitations.InvitationRefused as refusal:
                form.add_error("username", ValidationError(refusal.localized, code=refusal.code))
            else:
                form = InvitationForm()
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Invite"),
            "opts": self.opts,
            "form": form,
            "pending": invitations.list_pending_invitations(now=now),
        }
        if made is not None:
            address = reverse("login-link", args=[made[1]])
            context |= {
                "invited": made[0],
                "link": f"{settings.PUBLIC_URL}{address}"
                if settings.PUBLIC_URL
                else request.build_absolute_uri(address),
                "expires_at": now + invitations.LIFETIME,
            }
        return TemplateResponse(request, "admin/auth/user/invite.html", context)

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        rows: QuerySet[User] = super().get_queryset(request)
        return rows.prefetch_related("groups")

    def get_fieldsets(self, request: HttpRequest, obj: User | None = None) -> Any:
        """Offer roles instead of individual permissions. Only superusers can create a superuser."""
        if obj is None:
            return self.add_fieldsets
        access = ["is_active", "groups", "is_staff"]
        if request.user.is_superuser:
            access.append("is_superuser")
        return [
            (None, {"fields": ["username", "password"]}),
            (gettext("Personal info"), {"fields": ["first_name", "last_name", "email"]}),
            (gettext("Roles and groups"), {"fields": access}),
            (gettext("Usage"), {"fields": ["usage"]}),
            (gettext("Dates"), {"fields": ["last_login", "date_joined"]}),
        ]

    @admin.display(description=gettext_lazy("counted towards limits"))
    def usage(self, obj: User) -> str:
        """Return the tokens and costs that count towards the limits of the user's policies."""
        used = quotas.load_used_quota(obj.pk, now=timezone.now())
        sentence = gettext("{today:,} tokens today, {month:,} this month (UTC)").format(
            today=used.today, month=used.month
        )
        costs = [f"{cost:.2f} {currency}".strip() for currency, cost in used.costs.items() if cost]
        return join_items([sentence, *costs])

    def formfield_for_manytomany(
        self, db_field: Any, request: HttpRequest, **kwargs: Any
    ) -> forms.ModelMultipleChoiceField[Any] | None:
        kwargs["widget"] = forms.CheckboxSelectMultiple
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return True for Owners, except for superusers' accounts, which they could hijack."""
        if obj is not None and obj.is_superuser and not request.user.is_superuser:
            return False
        return super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: accounts are deactivated, and chats are erased on their own pages."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        """Save the account. The ledger lists the changed fields."""
        columns = {field.name for field in User._meta.concrete_fields}  # noqa: SLF001 - Django's documented model API
        changed = columns & set(form.changed_data) if change else {"username"}
        if changed:
            ended = inactive_users.save_account_and_stop_work(
                person=obj, changed=changed, actor=get_request_actor(request), now=timezone.now()
            )
            if "is_active" in changed:
                self.message_user(request, format_access_message(ended, is_active=obj.is_active))

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        """Save roles and groups with `roles.change_roles`, which checks and records the change."""
        groups = form.cleaned_data.get("groups")
        if groups is not None:
            roles.change_roles(
                person=form.instance,
                groups=list(groups),
                actor=get_request_actor(request),
                now=timezone.now(),
            )

    def user_change_password(
        self,
        request: HttpRequest,
        id: str,  # noqa: A002 - Django's name
        form_url: str = "",
    ) -> HttpResponse:
        """Show Django's form; record the change in the ledger, and revoke API keys if requested.

        Administrators confirm their identity first.
        """
        if not is_recently_confirmed(request):
            return sign_in_again(request)
        now = timezone.now()
        with transaction.atomic():
            response = super().user_change_password(request, id, form_url)
            if request.method == "POST" and response.status_code == 302:
                person = User.objects.get(pk=int(id))
                accounts.note_password(
                    user=person,
                    revoke_keys="revoke_keys" in request.POST,
                    actor=get_request_actor(request),
                    now=now,
                )
                # The other sessions of the user are already refused, but still listed.
                sessions.drop_sessions(user=person, keep=request.session.session_key, now=now)
        if isinstance(response, TemplateResponse) and response.context_data is not None:
            person = response.context_data["original"]
            response.context_data["usable_keys"] = len(keys.list_usable_keys(owner=person, now=now))
        return response

    @admin.display(description=gettext_lazy("Roles and groups"))
    def held_roles(self, person: User) -> str:
        names = [group.name for group in person.groups.all()]
        return join_items(
            [*([gettext("Superuser")] if person.is_superuser else []), *sorted(names)]
        )


def format_access_message(ended: accounts.EndedAccess, *, is_active: bool) -> str:
    """Return the message after an account was activated or deactivated.

    `ended`: number of sessions and keys that ended.
    """
    sessions = ngettext("{n} session ended", "{n} sessions ended", ended.sessions)
    revoked = ngettext("{n} API key revoked", "{n} API keys revoked", ended.keys)
    if is_active:
        form = gettext(
            "The account is active again: {sessions} and {keys}. The user must sign in and create "
            "new keys."
        )
    else:
        form = gettext(
            "The account is deactivated: {sessions} and {keys}. Reactivating the account does not "
            "restore them."
        )
    return form.format(
        sessions=sessions.format(n=ended.sessions), keys=revoked.format(n=ended.keys)
    )


class GroupForm(forms.ModelForm[Group]):
    """The name of a group, and its owners."""

    owners = forms.ModelMultipleChoiceField(
        label=gettext_lazy("Owners"),
        queryset=User.objects.none(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("Owners can edit the skills of this group."),
    )

    class Meta:
        model = Group
        fields = ("name",)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        field = self.fields.get("owners")
        if isinstance(field, forms.ModelMultipleChoiceField) and self.instance.pk:
            field.queryset = self.instance.user_set.order_by("username")
            self.initial["owners"] = User.objects.filter(owned_groups__group=self.instance)


class PeopleGroupAdmin(FreshSignInAdmin):
    """Roles, which are fixed, and groups for policies and skills, which grant no permissions."""

    form = GroupForm

    refusals = (roles.GroupInUse, roles.GroupNameTaken, roles.NameInvisible)
    list_display = ("name", "is_role", "members")
    search_fields = ("name",)
    fields = ("name", "is_role", "role_permissions", "members", "owners")
    readonly_fields = ("is_role", "role_permissions", "members")
    ordering = ("name",)

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """Count the members of all groups of the page with one query."""
        page = super().get_changelist_instance(request)
        groups = [group.pk for group in page.result_list]
        rows = Group.objects.filter(pk__in=groups).annotate(members=Count("user"))
        counts = dict(rows.values_list("pk", "members"))
        for group in page.result_list:
            group.member_count = counts.get(group.pk, 0)
        return page

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False for a role, because its permissions depend on its name."""
        return not _is_role(obj) and super().has_change_permission(request, obj)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Show the owners only for a saved group that may be changed."""
        is_open = obj is not None and self.has_change_permission(request, obj)
        return self.fields if is_open else tuple(n for n in self.fields if n != "owners")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return not _is_role(obj) and super().has_delete_permission(request, obj)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        actor, now = get_request_actor(request), timezone.now()
        roles.save_group(group=obj, actor=actor, now=now)
        owners = form.cleaned_data.get("owners")
        if change and owners is not None:
            roles.set_group_owners(group=obj, owners=owners, actor=actor, now=now)

    def delete_model(self, request: HttpRequest, obj: Group) -> None:
        roles.delete_group(group=obj, actor=get_request_actor(request), now=timezone.now())

    @admin.display(description=gettext_lazy("Role"))
    def is_role(self, group: Group) -> str:
        """Return “Yes” for a built-in role."""
        return gettext("Yes") if _is_role(group) else gettext("No")

    @admin.display(description=gettext_lazy("Permissions"))
    def role_permissions(self, group: Group) -> str:
        return join_items(sorted(roles.ROLES.get(group.name, ()))) or gettext("none")

    @admin.display(description=gettext_lazy("Members"))
    def members(self, group: Group) -> int:
        counted: int | None = getattr(group, "member_count", None)
        if counted is not None:
            return counted
        return group.user_set.count() if group.pk else 0


def _is_role(group: Group | None) -> bool:
    return group is not None and group.name in roles.ROLES
