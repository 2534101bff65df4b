"""Routers of the API. URLs have no trailing slash; prefixes and ids use path converters."""

from rest_framework.routers import DynamicRoute, Route, SimpleRouter


class Router(SimpleRouter):
    """Routes the actions of lists and of their items."""

    def __init__(self) -> None:
        super().__init__(trailing_slash=False, use_regex_path=False)


class SingletonRouter(Router):
    """Routes the actions of resources that exist once and have no id."""

    def __init__(self) -> None:
        self.routes = [
            Route(
                url="{prefix}",
                mapping={
                    "get": "retrieve",
                    "post": "create",
                    "patch": "partial_update",
                    "delete": "destroy",
                },
                name="{basename}",
                detail=False,
                initkwargs={},
            ),
            DynamicRoute(
                url="{prefix}/{url_path}", name="{basename}-{url_name}", detail=False, initkwargs={}
            ),
        ]
        super().__init__()
