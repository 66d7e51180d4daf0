"""Requests to the control API."""

from __future__ import annotations

import http.client
import json
from typing import Any, Iterator, Optional, Union
from urllib.parse import quote, urlencode

from .connection import Connector
from .errors import ApiError, Unreachable
from .watch import Event, Watch

# Kinds whose objects are in a namespace.
NAMESPACED = frozenset(
    {"Service", "EndpointSet", "Workload", "EndpointHealth", "Certificate", "Gateway", "HttpRoute", "TlsRoute", "NetworkPolicy"}
)

Objects = Union[dict, list]


def path_of(kind: str, namespace: Optional[str], name: Optional[str] = None) -> str:
    """Returns the path of an object, or of the objects of a kind in one namespace or in all."""
    parts = ["/v1"]
    if kind in NAMESPACED and namespace is not None:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(f"{kind.lower()}s")
    if name is not None:
        parts.append(quote(name, safe=""))
    return "/".join(parts)


def flags(**values: Any) -> dict:
    """Returns query parameters without those that are not set."""
    texts = {True: "true", False: "false"}
    return {key: texts.get(value, value) if isinstance(value, bool) else value for key, value in values.items() if value is not None}


class Client:
    """Client of the control API. One client may be used by several threads.

    Args:
        api: URLs of the control servers, separated by commas and tried in turn, or ``unix:PATH``.
        token: bearer token.
        ca_file: PEM file with the CA certificates of the servers.
        timeout: maximum duration in seconds without a response; for a watch the longest silence.
        author: author of the changes for history and audit log, at most 260 characters.
    """

    def __init__(
        self,
        api: Optional[str] = None,
        token: Optional[str] = None,
        ca_file: Optional[str] = None,
        timeout: float = 30.0,
        author: Optional[str] = None,
    ):
        self._connector = Connector(api, token, ca_file, timeout)
        self._author = author

    def request(self, method: str, path: str, query: Optional[dict] = None, body: Any = None, headers: Optional[dict] = None) -> Any:
        """Sends one request and returns the JSON of the response, its text if it is not JSON, or None if it has no body.

        A request that was sent is not repeated, because it may have had an effect.

        Raises:
            ApiError: the server answered with an error.
            Unreachable: no server was reached, or the connection was lost.
        """
        connection = self._connector.connect()
        try:
            response = self._send(connection, method, path, query, body, headers)
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{method} {path}: {error}") from error
        finally:
            connection.close()
        if response.status >= 400:
            raise ApiError(response.status, content)
        if not content:
            return None
        is_json = response.headers.get_content_type() == "application/json"
        return json.loads(content) if is_json else content.decode()

    def _send(self, connection, method, path, query, body, headers) -> http.client.HTTPResponse:
        target = f"{path}?{urlencode(query)}" if query else path
        all_headers = {**self._connector.headers(), **(headers or {})}
        if self._author and method != "GET":
            all_headers["X-Tidegate-Author"] = self._author
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            all_headers.setdefault("Content-Type", "application/json")
        connection.request(method, target, body=content, headers=all_headers)
        return connection.getresponse()

    def get(self, kind: str, name: str, namespace: str = "default") -> dict:
        """Returns one object. Raises ApiError with the code ``NotFound`` if there is none."""
        return self.request("GET", path_of(kind, namespace, name))

    def list(
        self, kind: str, namespace: Optional[str] = None, label_selector: Optional[str] = None, page: int = 500
    ) -> Iterator[dict]:
        """Yields the objects of a kind, of all namespaces unless one is given.

        All objects are of the same state, that of the first page. `page` is the number of objects in one response, 1 to 5000.
        """
        token = None
        while True:
            query = flags(limit=page, labelSelector=label_selector, **{"continue": token})
            answer = self.request("GET", path_of(kind, namespace), query)
            yield from answer["items"]
            token = answer["metadata"].get("continue")
            if not token:
                return

    def apply(
        self,
        objects: Objects,
        dry_run: bool = False,
        confirm: bool = False,
        apply_set: Optional[str] = None,
        prune: Optional[bool] = None,
        message: Optional[str] = None,
    ) -> dict:
        """Creates or replaces objects in one revision, or none of them, and returns the result for each.

        With `apply_set` and `prune`, members of the set that are not among the objects are deleted. `confirm` permits a write
        that removes more addresses or endpoints than the limits (guards) of the server.
        """
        query = flags(dryRun=dry_run or None, confirm=confirm or None, applySet=apply_set, prune=prune)
        return self.request("POST", "/v1/apply", query, objects, _reason(message))

    def plan(self, objects: Objects, apply_set: Optional[str] = None, prune: Optional[bool] = None) -> dict:
        """Returns the effect that `apply` would have on objects, addresses and every node. The plan is kept for one hour."""
        return self.request("POST", "/v1/plan", flags(applySet=apply_set, prune=prune), objects)

    def apply_plan(self, plan: str, message: Optional[str] = None) -> dict:
        """Applies a plan by its id. Raises ApiError if one of its objects was changed since it was made."""
        return self.request("POST", f"/v1/plans/{quote(plan, safe='')}/apply", headers=_reason(message))

    def patch(self, kind: str, name: str, patch: dict, namespace: str = "default", message: Optional[str] = None) -> dict:
        """Changes fields of an object by a JSON merge patch (RFC 7396) and returns the object."""
        headers = {"Content-Type": "application/merge-patch+json", **_reason(message)}
        return self.request("PATCH", path_of(kind, namespace, name), body=patch, headers=headers)

    def delete(self, kind: str, name: str, namespace: str = "default", message: Optional[str] = None) -> None:
        """Deletes an object. Raises ApiError with the code ``NotFound`` if there is none."""
        self.request("DELETE", path_of(kind, namespace, name), headers=_reason(message))

    def watch(
        self,
        *kinds: str,
        namespace: Optional[str] = None,
        label_selector: Optional[str] = None,
    ) -> Iterator[Event]:
        """Yields the current objects as ``ADDED``, an event ``SYNCED``, and then every change, without an end.

        The watch continues after a lost connection. Without kinds, objects of all kinds are watched.

        Raises:
            ApiError: the server refuses the watch, for example because of a missing permission.
        """
        query = flags(kinds=",".join(kinds) or None, namespace=namespace, labelSelector=label_selector)
        return Watch(self._stream, query).events()

    def _stream(self, query: dict) -> Iterator[dict]:
        """Yields the lines of one watch request, until the connection ends."""
        connection = self._connector.connect()
        try:
            response = self._send(connection, "GET", "/v1/watch", query, None, {"Accept": "application/x-ndjson"})
            if response.status >= 400:
                raise ApiError(response.status, response.read())
            while True:
                line = response.readline()
                if not line.endswith(b"\n"):
                    raise Unreachable("the watch ended")
                yield json.loads(line)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"watch: {error}") from error
        finally:
            connection.close()


def _reason(message: Optional[str]) -> dict:
    return {"X-Change-Message": message} if message else {}
