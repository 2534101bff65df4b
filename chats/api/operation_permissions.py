"""The permissions that operations of the administration require, for the OpenAPI schema."""

from collections.abc import Mapping

AUDIT = "contextpolicy.view_auditevent"
POLICIES = "contextpolicy.view_contextpolicy"
EDITS = "contextpolicy.change_contextpolicy"
ADDS = "contextpolicy.add_contextpolicy"
RUNS = "chats.view_retentionrun"

PERMISSIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("audit_checkpoints_list", "audit_proof", "audit_export"), (AUDIT,)),
    **dict.fromkeys(
        (
            "audit_compactions_request",
            "audit_compactions_request_file",
            "audit_readings_asked",
            "audit_readings_end",
            "audit_readings_get",
            "audit_readings_grant",
            "audit_readings_list",
            "audit_readings_open",
            "audit_readings_refuse",
            "audit_receipts_request",
            "audit_receipts_request_file",
        ),
        (AUDIT, "chats.view_receipt"),
    ),
    "counts": ("chats.view_dailycount",),
    **dict.fromkeys(("evaluations_list", "evaluations_get"), ("contextpolicy.view_evaluation",)),
    **dict.fromkeys(("radii_list", "radii_get"), ("contextpolicy.view_blastradius",)),
    **dict.fromkeys(("holds_list", "holds_retrieve"), ("contextpolicy.view_legalhold",)),
    "holds_place": ("contextpolicy.add_legalhold",),
    "holds_release": ("contextpolicy.change_legalhold",),
    **dict.fromkeys(
        (
            "policies_balance",
            "policies_export",
            "policies_get",
            "policies_list",
            "policies_versions_get",
            "policies_versions_list",
        ),
        (POLICIES,),
    ),
    "policies_create": (ADDS,),
    "policies_import": (ADDS, EDITS),
    **dict.fromkeys(
        (
            "evaluations_begin",
            "evaluations_end",
            "evaluations_promote",
            "policies_change",
            "policies_lint",
            "policies_recommended_create",
            "policies_recommended_list",
            "policies_trial",
            "policies_versions_activate",
            "policies_versions_create",
            "policies_versions_restore",
            "radii_begin",
            "radii_resume",
            "radii_stop",
        ),
        (EDITS,),
    ),
    "policies_assignments_list": ("contextpolicy.view_policyassignment",),
    "policies_assignments_create": ("contextpolicy.add_policyassignment",),
    "policies_assignments_delete": ("contextpolicy.delete_policyassignment",),
    "retention_certificate": (RUNS,),
    "retention_preview": (RUNS,),
    "retention_runs_list": (RUNS,),
    "retention_runs_begin": ("chats.add_retentionrun",),
}
