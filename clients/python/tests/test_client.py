"""The client against a real control server: `python3 -m unittest discover --start-directory clients/python/tests`."""

import json
import pathlib
import sys
import tempfile
import threading
import unittest

from server import ROOT, Server

sys.path.insert(0, str(ROOT / "clients/python"))

import tidegate  # noqa: E402
from tidegate.client import NAMESPACED, path_of  # noqa: E402

# Longest time to wait for an event or for a server.
PATIENCE = 20.0


def service(name, namespace="default", **metadata):
    return {
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": name, **metadata},
        "spec": {"ports": [{"port": 80, "targetPort": 8080}]},
    }


class Watcher:
    """Collects the events of a watch in a thread."""

    def __init__(self, client, *kinds, **arguments):
        self.events = []
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self.run, args=(client, kinds, arguments), daemon=True)
        self.thread.start()

    def run(self, client, kinds, arguments):
        for event in client.watch(*kinds, **arguments):
            with self.changed:
                self.events.append((event.type, event.object and event.object["metadata"]["name"]))
                self.changed.notify_all()

    def wait_for(self, expected):
        with self.changed:
            self.changed.wait_for(lambda: len(self.events) >= len(expected), PATIENCE)
            return self.events[:]


class ClientTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def start(self, store="memory:", port=0, *arguments):
        server = Server(self.directory, store, port, *arguments)
        self.addCleanup(server.end)
        return server

    def test_paths_are_those_of_the_api(self):
        document = json.loads((ROOT / "openapi/tidegate-v1.json").read_text())
        kinds = {name[: -len("List")] for name, schema in document["components"]["schemas"].items()
                 if name.endswith("List") and "metadata" in schema["properties"] and "items" in schema["properties"]}
        kinds = {kind for kind in kinds if f"/v1/{kind.lower()}s/{{name}}" in document["paths"]
                 or f"/v1/namespaces/{{namespace}}/{kind.lower()}s/{{name}}" in document["paths"]}
        self.assertIn("Service", kinds)
        for kind in kinds:
            is_namespaced = f"/v1/namespaces/{{namespace}}/{kind.lower()}s" in document["paths"]
            self.assertEqual(kind in NAMESPACED, is_namespaced, kind)
            self.assertIn(path_of(kind, None), document["paths"])

    def test_objects_are_written_read_and_deleted(self):
        client = tidegate.Client(self.start().url, author="robot")
        names = [f"web-{number}" for number in range(7)]
        answer = client.apply([service(name) for name in names], message="first release")
        self.assertEqual({result["action"] for result in answer["results"]}, {"created"})
        # Several pages.
        self.assertEqual([item["metadata"]["name"] for item in client.list("Service", page=3)], names)
        self.assertEqual(list(client.list("Service", namespace="elsewhere")), [])

        client.patch("Service", "web-0", {"metadata": {"labels": {"tier": "front"}}})
        selected = list(client.list("Service", label_selector="tier=front"))
        self.assertEqual([item["metadata"]["name"] for item in selected], ["web-0"])

        client.delete("Service", "web-0", message="no longer needed")
        with self.assertRaises(tidegate.ApiError) as raised:
            client.get("Service", "web-0")
        self.assertEqual((raised.exception.status, raised.exception.code), (404, "NotFound"))
        last = client.request("GET", "/v1/history", {"limit": 1})["items"][0]
        self.assertEqual(last["message"], "no longer needed")
        self.assertIn("robot", json.dumps(last))

    def test_an_invalid_field_is_named(self):
        client = tidegate.Client(self.start().url)
        wrong = service("web")
        wrong["spec"]["ports"][0]["port"] = 0
        with self.assertRaises(tidegate.ApiError) as raised:
            client.apply(wrong)
        self.assertEqual(raised.exception.errors[0]["pointer"], "/items/0/spec/ports/0/port")
        self.assertIn("/items/0/spec/ports/0/port: ", str(raised.exception))
        self.assertTrue(raised.exception.request_id)

    def test_a_plan_is_applied_only_to_the_state_that_it_shows(self):
        client = tidegate.Client(self.start().url)
        plan = client.plan([service("web")])
        self.assertEqual([one["object"] for one in plan["objects"]], ["Service default/web"])
        self.assertEqual(list(client.list("Service")), [])
        client.apply_plan(plan["id"])
        outdated = client.plan([service("web", labels={"a": "1"})])
        client.patch("Service", "web", {"metadata": {"labels": {"a": "2"}}})
        with self.assertRaises(tidegate.ApiError) as raised:
            client.apply_plan(outdated["id"])
        self.assertEqual(raised.exception.code, "PlanOutdated")
        self.assertEqual(client.get("Service", "web")["metadata"]["labels"], {"a": "2"})

    def test_a_token_is_sent(self):
        token_file = self.directory / "token"
        server = self.start("memory:", 0, "--auth", "required", "--bootstrap-token-file", str(token_file))
        with self.assertRaises(tidegate.ApiError) as raised:
            list(tidegate.Client(server.url).list("Service"))
        self.assertEqual(raised.exception.code, "Unauthenticated")
        with self.assertRaises(tidegate.ApiError):
            next(tidegate.Client(server.url).watch("Service"))
        token = token_file.read_text().strip()
        self.assertEqual(list(tidegate.Client(server.url, token=token).list("Service")), [])
        self.assertNotIn(token, repr(raised.exception))

    def test_sockets_and_certificates(self):
        socket = self.directory / "socket"
        server = self.start("memory:", 0, "--tls", "on", "--auth", "off", "--listen-socket", str(socket))
        certificate = tidegate.Client(f"unix:{socket}").request("GET", "/v1/ca")
        with self.assertRaises(tidegate.Unreachable) as raised:
            list(tidegate.Client(server.url).list("Service"))
        self.assertIn("CERTIFICATE_VERIFY_FAILED", str(raised.exception))
        ca_file = self.directory / "ca.pem"
        ca_file.write_text(certificate)
        self.assertEqual(list(tidegate.Client(server.url, ca_file=str(ca_file)).list("Service")), [])

    def test_the_next_server_is_asked_if_one_is_down(self):
        gone, server = self.start(), self.start()
        gone.end()
        client = tidegate.Client(f"{gone.url},{server.url}")
        self.assertEqual(list(client.list("Service")), [])
        server.end()
        with self.assertRaises(tidegate.Unreachable) as raised:
            list(client.list("Service"))
        self.assertIn(gone.url, str(raised.exception))
        self.assertIn(server.url, str(raised.exception))

    def test_a_watch_continues_after_a_restart(self):
        store = f"sqlite:{self.directory / 'store.db'}"
        server = self.start(store)
        client = tidegate.Client(server.url)
        client.apply([service("a"), service("b")])
        watcher = Watcher(client, "Service", namespace="default")
        expected = [("ADDED", "a"), ("ADDED", "b"), ("SYNCED", None)]
        self.assertEqual(watcher.wait_for(expected), expected)
        server.end()
        server = self.start(store, server.port)
        client.apply([service("c"), service("elsewhere", namespace="other")])
        client.delete("Service", "a")
        client.patch("Service", "b", {"metadata": {"labels": {"x": "y"}}})
        expected += [("ADDED", "c"), ("DELETED", "a"), ("MODIFIED", "b")]
        self.assertEqual(watcher.wait_for(expected), expected)

    def test_a_watch_of_another_store_yields_the_differences(self):
        server = self.start()
        client = tidegate.Client(server.url)
        client.apply([service("a"), service("b")])
        watcher = Watcher(client, "Service")
        expected = [("ADDED", "a"), ("ADDED", "b"), ("SYNCED", None)]
        self.assertEqual(watcher.wait_for(expected), expected)
        # An empty store knows nothing of the position to resume from.
        server.end()
        self.start("memory:", server.port)
        client.apply([service("c")])
        self.assertEqual(sorted(watcher.wait_for(expected + [None] * 3)[3:]),
                         [("ADDED", "c"), ("DELETED", "a"), ("DELETED", "b")])


if __name__ == "__main__":
    unittest.main()
