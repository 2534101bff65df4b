"""URLs of the gateway, below /v1/."""

from django.urls import path, re_path, register_converter
from django.urls.converters import StringConverter

from chats.gateway import completion_views, embedding_views
from chats.gateway.chat_completions import views
from chats.gateway.responses import conversation_views, response_views


class ModelName(StringConverter):
    # Servers choose the names of their models freely.
    regex = r"[^\x00]{1,200}"


register_converter(ModelName, "model")

urlpatterns = [
    path("models", views.model_list),
    path("models/<model:name>", views.model_detail),
    path("chat/completions", views.chat_completions),
    path("completions", completion_views.completions),
    path("responses", response_views.responses),
    path("responses/compact", response_views.compact_input),
    path("responses/<str:response_id>", response_views.response_detail),
    path("responses/<str:response_id>/input_items", response_views.input_item_list),
    path("conversations", conversation_views.conversations),
    path("conversations/<str:conversation_id>", conversation_views.conversation_detail),
    path("conversations/<str:conversation_id>/items", conversation_views.item_list),
    path("conversations/<str:conversation_id>/items/<str:item_id>", conversation_views.item_detail),
    path("embeddings", embedding_views.embeddings),
    re_path("^.*$", views.unknown_address),
]
