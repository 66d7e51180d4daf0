"""A watch that outlives its connections."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from typing import Callable, Iterator, Optional

from .errors import ApiError, Unreachable

# Seconds before a connection is tried again, at first and at most.
DELAY_MIN, DELAY_MAX = 0.1, 5.0
# Problems that end when a server is asked again a little later.
PASSING = frozenset({"TooManyRequests", "Timeout", "Behind", "NotLeader", "Unavailable"})


@dataclass(frozen=True)
class Event:
    """Event of a watch.

    Attributes:
        type: ``ADDED``, ``MODIFIED``, ``DELETED``, or ``SYNCED`` after the objects that existed at the beginning.
        object: the object after the change, or its last state if it was deleted; None in the event ``SYNCED``.
    """

    type: str
    object: Optional[dict]


def _key(item: dict) -> tuple:
    metadata = item["metadata"]
    return item["kind"], metadata.get("namespace", ""), metadata["name"]


def _version(item: dict) -> tuple:
    return item["metadata"].get("uid"), item["metadata"]["resourceVersion"]


class Watch:
    """State of a watch: the objects that its caller knows, and the position to resume from.

    `stream` yields the events of one request with the given query.
    """

    def __init__(self, stream: Callable[[dict], Iterator[dict]], query: dict):
        self._stream = stream
        self._query = query
        self._known: dict = {}
        self._position: Optional[str] = None
        self._is_synced = False

    def events(self) -> Iterator[Event]:
        """Yields the events of all requests, without an end."""
        delay = DELAY_MIN
        while True:
            try:
                for event in self._one_request():
                    delay = DELAY_MIN
                    yield event
            except Unreachable:
                pass
            except ApiError as error:
                if error.code == "ResumeExpired":
                    self._position = None
                    continue
                if error.code not in PASSING:
                    raise
            # Many clients of one server do not return at the same time.
            time.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(delay * 2, DELAY_MAX)

    def _one_request(self) -> Iterator[Event]:
        query = dict(self._query)
        # Keys of the objects of a complete list, until its end.
        listed: Optional[set] = None
        if self._position is None:
            listed = set()
        else:
            query["resume"] = self._position
        for line in self._stream(query):
            kind = line["type"]
            if kind == "ERROR":
                problem = line["problem"]
                raise ApiError(problem["status"], json.dumps(problem).encode())
            if kind in ("ADDED", "MODIFIED", "DELETED"):
                if listed is not None:
                    listed.add(_key(line["object"]))
                yield from self._change(kind, line["object"])
            if listed is not None and line.get("initial"):
                for key in [key for key in self._known if key not in listed]:
                    yield Event("DELETED", self._known.pop(key))
                listed = None
                if not self._is_synced:
                    self._is_synced = True
                    yield Event("SYNCED", None)
            # Only after everything before it was passed on.
            self._position = (line.get("position") or self._position) if listed is None else None

    def _change(self, kind: str, item: dict) -> Iterator[Event]:
        key = _key(item)
        before = self._known.get(key)
        if kind == "DELETED":
            if self._known.pop(key, None) is not None:
                yield Event("DELETED", item)
        elif before is None:
            self._known[key] = item
            yield Event("ADDED", item)
        elif _version(before) != _version(item):
            self._known[key] = item
            yield Event("MODIFIED", item)
