"""Prepared statements for composing a prompt."""

from django.db.models import BooleanField, ExpressionWrapper, F, Q
from django.db.models.functions import Now

from chats.models import Branch, Compaction, MemorySettings, Message, ProviderAccount
from contextpolicy.models import ModelSpec
from speed import prepared

LEARNED_FACTORS = prepared.Update(
    lambda at: ModelSpec.objects.filter(pk=at("model"), calibration=at("known")),
    ("calibration", "calibration_by_script", "calibration_samples_by_script"),
    lambda _at: {"calibration_samples": F("calibration_samples") + 1},
)


DEFAULT_MODEL = prepared.Select(
    lambda _at: ModelSpec.objects.filter(is_default=True, enabled=True).order_by("pk")[:1]
)


ACCOUNT = prepared.Select(
    lambda at: ProviderAccount.objects.annotate(
        is_paused=ExpressionWrapper(Q(paused_until__gt=Now()), output_field=BooleanField())
    ).filter(slug=at("slug"))
)


BRANCH = prepared.Select(lambda at: Branch.objects.filter(pk=at("branch")))


# A compaction with its base. Prepared, because compiling its 140 columns takes longer than reading
# the row.
COMPACTION = prepared.Select(
    lambda at: Compaction.objects.select_related("base").filter(pk=at("compaction"))
)


MEMORY = prepared.Select(lambda at: MemorySettings.objects.filter(owner=at("owner")))


OWN_MESSAGES = prepared.Select(
    lambda at: Message.objects.filter(turn=at("turn"), seq__isnull=False)
)
