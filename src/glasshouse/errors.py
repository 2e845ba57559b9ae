"""The one error that a user can cause: reported as a single line, with exit code 2."""


class BadInput(ValueError):
    """Something the user gave cannot be used; the message names the value, the rule and the remedy."""
