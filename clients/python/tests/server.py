"""A real control server for tests: TIDEGATE_API_PROGRAM, by default target/debug/tidegate-api."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = os.environ.get("TIDEGATE_API_PROGRAM", str(ROOT / "target/debug/tidegate-api"))


class Server:
    """A control server with its log in `directory`. It listens at `port`, or at a free one."""

    def __init__(self, directory, store="memory:", port=0, *arguments):
        log = open(directory / "log", "ab")
        self.process = subprocess.Popen(
            [PROGRAM, "--listen", f"127.0.0.1:{port}", "--store", store, "--service-cidr", "10.96.0.0/16", *arguments],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        log.close()
        line = self.process.stdout.readline()
        if "listening on" not in line:
            raise AssertionError((directory / "log").read_text())
        self.url = line.split()[-1]
        self.port = int(self.url.rsplit(":", 1)[1])

    def end(self):
        if self.process.returncode is not None:
            return
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
