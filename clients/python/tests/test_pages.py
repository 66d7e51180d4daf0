"""The commands of the documentation, run in order against a real control server."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from server import ROOT, Server


def blocks(page, language):
    """Returns the fenced code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


class PagesTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.server = Server(self.directory)
        self.addCleanup(self.server.end)

    def run_text(self, command, text):
        environment = {**os.environ, "TIDEGATE_API": self.server.url, "PYTHONPATH": str(ROOT / "clients/python")}
        result = subprocess.run(
            command, input=text, cwd=self.directory, env=environment, text=True, capture_output=True, timeout=60, check=False
        )
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout.splitlines()

    def test_scripts_and_ci(self):
        page = "docs/how-to/automation.md"
        lines = self.run_text(["bash", "-eu"], "\n".join(blocks(page, "bash")))
        self.assertEqual(lines[:2], ["Service web created", "EndpointSet web created"])
        self.assertEqual(lines[2], "front")
        plan = ["updated Service shop/web", "  /metadata/labels", "updated EndpointSet shop/web", "  /spec/endpoints/0/address"]
        self.assertEqual(lines[3:7], plan)
        self.assertIn("EndpointsAvailable=", "\n".join(lines[7:]))
        self.assertEqual(lines[-1], "ADDED web")
        self.assertEqual(
            self.run_text([sys.executable, "-"], "\n".join(blocks(page, "python"))),
            ["updated Service shop/web", "ADDED web"],
        )

    def test_readme_of_the_client(self):
        begin = blocks("clients/python/README.md", "python")[0]
        self.assertEqual(self.run_text([sys.executable, "-"], begin), [])


if __name__ == "__main__":
    unittest.main()
