"""The one exception that a user is meant to read."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake in what was asked for, told in one sentence that says what to do.

    The command line prints the message on one line and exits with status 2; from Python it is an
    ordinary ``ValueError``.
    """
