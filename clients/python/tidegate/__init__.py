"""Client of the Tidegate control API."""

from .client import Client
from .errors import ApiError, TidegateError, Unreachable
from .watch import Event

__all__ = ["ApiError", "Client", "Event", "TidegateError", "Unreachable"]
