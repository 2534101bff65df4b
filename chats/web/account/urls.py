"""URLs for sign-in and sign-out. They have no namespace, because Django looks them up by name."""

from django.urls import path

from chats.web.account import confirming, passwords, signin

urlpatterns = [
    path("login/", signin.login, name="login"),
    path("login/link/<slug:token>/", signin.login_link, name="login-link"),
    path("logout/", signin.logout, name="logout"),
    path("account/confirm/", confirming.confirm_identity, name="confirm"),
    path("account/password/", passwords.password_change, name="password-change"),
]
