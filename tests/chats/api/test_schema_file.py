"""`docs/openapi.yaml` is the schema: a change of the interface stands in its own diff."""

from typing import Any

from drf_spectacular.renderers import OpenApiYamlRenderer

from chats.api.schema import Generator
from tests.faults.programs import ROOT


def test_the_file_is_what_the_endpoints_say() -> None:
    schema = Generator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]  # untyped there
    renderer: Any = OpenApiYamlRenderer()
    written = renderer.render(schema, renderer_context={})
    kept = (ROOT / "docs" / "openapi.yaml").read_bytes()
    # Not shown line by line: there are many, and `make schema` followed by `git diff` has them.
    is_same = kept == written
    assert is_same, "docs/openapi.yaml is behind the endpoints: make schema"
