"""The one error that a user can cause, and the one by which an attack says that it does not apply."""


class BadInput(ValueError):
    """Something the user gave cannot be used; the message names the value, the rule and the remedy."""


class CannotRun(Exception):
    """The attack does not apply here; the message says why, and becomes the reason of a null finding."""
