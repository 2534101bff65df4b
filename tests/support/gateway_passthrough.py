"""Requests to the gateway without a context policy."""

from collections.abc import Callable

from tests.support.scripted_worker import ScriptedProvider

POLICY_OFF = {"X-Context-Policy": "off"}
ScriptModel = Callable[..., ScriptedProvider]
