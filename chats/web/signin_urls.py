"""Where people sign in and out. Without a namespace: Django and its admin look these up by name."""

from django.urls import path

from chats.web import signin_views

urlpatterns = [
    path("login/", signin_views.login, name="login"),
    path("login/link/<slug:token>/", signin_views.login_link, name="login-link"),
    path("logout/", signin_views.logout, name="logout"),
    path("account/password/", signin_views.password_change, name="password-change"),
]
