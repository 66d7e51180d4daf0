"""HTTP connections to control servers."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
from typing import Optional
from urllib.parse import urlsplit

from .errors import TidegateError, Unreachable

DEFAULT_API = "http://127.0.0.1:7440"


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Connector:
    """Addresses and credentials of the control servers of one cluster."""

    def __init__(self, api: Optional[str], token: Optional[str], ca_file: Optional[str], timeout: float):
        environment = os.environ
        self.servers = [server.strip() for server in (api or environment.get("TIDEGATE_API") or DEFAULT_API).split(",")]
        for server in self.servers:
            if not server.startswith(("http://", "https://", "unix:")):
                raise TidegateError(f"{server!r} is no address of a server: http://HOST:PORT, https://HOST:PORT or unix:PATH")
        token_file = environment.get("TIDEGATE_TOKEN_FILE")
        token = token or environment.get("TIDEGATE_TOKEN")
        if not token and token_file:
            with open(token_file, encoding="ascii") as file:
                token = file.read().strip()
        self._token = token
        ca_file = ca_file or environment.get("TIDEGATE_CA_FILE")
        if not ca_file and environment.get("TIDEGATE_CA_HASH"):
            raise TidegateError("TIDEGATE_CA_HASH is not supported: use ca_file with the response of GET /v1/ca")
        self._tls = None
        if any(server.startswith("https://") for server in self.servers):
            self._tls = ssl.create_default_context(cafile=ca_file)
        self.timeout = timeout

    def headers(self) -> dict:
        """Returns the headers of every request."""
        headers = {"Accept": "application/json", "User-Agent": "tidegate-python"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def connect(self) -> http.client.HTTPConnection:
        """Returns a connection to the first server that accepts one.

        Raises:
            Unreachable: no server accepts a connection.
        """
        causes = []
        for server in list(self.servers):
            connection = self._prepare(server)
            try:
                connection.connect()
                return connection
            except OSError as error:
                connection.close()
                causes.append(f"{server}: {error}")
                # The next request begins with another server.
                self.servers.append(self.servers.pop(0))
        raise Unreachable("no control server was reached: " + "; ".join(causes))

    def _prepare(self, server: str) -> http.client.HTTPConnection:
        if server.startswith("unix:"):
            return _UnixConnection(server[len("unix:") :], self.timeout)
        parts = urlsplit(server)
        if parts.scheme == "https":
            return http.client.HTTPSConnection(parts.netloc, timeout=self.timeout, context=self._tls)
        return http.client.HTTPConnection(parts.netloc, timeout=self.timeout)
