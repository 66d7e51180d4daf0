"""Errors of the client."""

from __future__ import annotations

import json


class TidegateError(Exception):
    """Base class of the errors of this package."""


class Unreachable(TidegateError):
    """No control server could be reached, or the connection was lost before the end of the response."""


class ApiError(TidegateError):
    """Error response of a control server (RFC 9457).

    Attributes:
        status: HTTP status code.
        code: stable code of the problem, such as ``NotFound``. Empty if the response had none.
        detail: description for people.
        hint: suggested remedy, or None.
        errors: invalid fields or conflicting objects, as a list of dictionaries.
        request_id: id of the request in the log of the server, or None.
        problem: the whole response, as a dictionary.
    """

    def __init__(self, status: int, body: bytes):
        try:
            problem = json.loads(body)
        except ValueError:
            problem = None
        self.problem: dict = problem if isinstance(problem, dict) else {}
        self.status = status
        self.code: str = self.problem.get("code", "")
        self.detail: str = self.problem.get("detail") or body[:300].decode("utf-8", "replace")
        self.hint = self.problem.get("hint")
        self.errors: list = self.problem.get("errors", [])
        self.request_id = self.problem.get("requestId")
        super().__init__(self._text())

    def _text(self) -> str:
        lines = [f"{self.status} {self.code}: {self.detail}"]
        for error in self.errors:
            lines.append(f"  {error.get('pointer', '')}: {error.get('message', '')}")
        if self.hint:
            lines.append(self.hint)
        return "\n".join(lines)
