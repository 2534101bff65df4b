"""Permissions of each role in the administration."""

from contextpolicy import roles

P, O, A, W, S = roles.POLICY_ADMIN, roles.OPERATOR, roles.AUDITOR, roles.OWNER, "superuser"  # noqa: E741 - a table's heads
# For each model: roles that may view it, and roles that may add, change and delete.
ROLE_TABLE: dict[str, tuple[set[str], set[str], set[str], set[str]]] = {
    "contextpolicy_contextpolicy": ({P, A, S}, {P, S}, {P, S}, set()),
    "contextpolicy_policyassignment": ({P, A, S}, {P, S}, set(), {P, S}),
    "contextpolicy_skill": ({P, A, S}, {P, S}, {P, S}, set()),
    "contextpolicy_effectivepolicy": ({P, A, S}, set(), set(), set()),
    "contextpolicy_auditevent": ({A, S}, set(), set(), set()),
    "contextpolicy_legalhold": ({P, A, S}, {P, S}, {P, S}, set()),
    "contextpolicy_blastradius": ({P, A, S}, set(), set(), set()),
    "contextpolicy_evaluation": ({P, A, S}, set(), set(), set()),
    "contextpolicy_modelspec": ({O, S}, {O, S}, {O, S}, set()),
    "chats_provideraccount": ({O, S}, {O, S}, {O, S}, {O, S}),
    "contextpolicy_toolserver": ({O, P, A, S}, {O, S}, {O, S}, set()),
    "contextpolicy_tooldefinition": ({O, P, A, S}, set(), {O, S}, set()),
    "chats_turn": ({O, A, S}, set(), set(), set()),
    "chats_receipt": ({A, S}, set(), set(), set()),
    "chats_compaction": ({P, O, A, S}, set(), set(), set()),
    "chats_dailycount": ({P, O, S}, set(), set(), set()),
    "chats_team": ({P, A, S}, set(), set(), set()),
    "chats_retentionrun": ({P, A, S}, set(), set(), set()),
    # A POST with a reason shows the text; nothing is changed.
    "chats_kepttext": ({A, S}, set(), {A, S}, set()),
    "auth_user": ({W, S}, {W, S}, {W, S}, set()),
    "auth_group": ({W, S}, {W, S}, {W, S}, {W, S}),
}
