#!/usr/bin/env python3
"""Divides the test programs of the workspace into lanes for lab/run-tests.sh.

Usage: cargo test --no-run --message-format=json-render-diagnostics | lab/test-lanes.py DIRECTORY

Writes DIRECTORY/NAME.lane for each lane: the working directory, the number of tests and the words of the command, one a
line. Prints the names of the lanes.
"""

import json
import os
import subprocess
import sys

# Crates whose integration tests are over before further processes would have started.
ONE_LANE = {"bfd", "bgp", "model", "translate"}


def tests_of(program):
    """Returns the full names of the tests of a program, including ignored ones."""
    command = [program, "--list", "--format", "terse"]
    listing = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [line.removesuffix(": test") for line in listing.splitlines() if line.endswith(": test")]


def lanes_of(crate, target, program):
    """Yields the lanes of a program: their name and the names of their tests."""
    kind, name = target["kind"][0], target["name"]
    tests = tests_of(program)
    if kind == "test" and name == "it" and crate not in ONE_LANE:
        modules = {}
        for test in tests:
            modules.setdefault(test.split("::")[0], []).append(test)
        yield from modules.items()
    elif tests:
        yield (name if kind == "test" else f"{kind}-{name}"), tests


def main():
    directory = sys.argv[1]
    for line in sys.stdin:
        message = json.loads(line)
        if message["reason"] != "compiler-artifact" or not message["profile"]["test"] or not message["executable"]:
            continue
        home = os.path.dirname(message["manifest_path"])
        crate = os.path.basename(home)
        for name, tests in lanes_of(crate, message["target"], message["executable"]):
            with open(f"{directory}/{crate}.{name}.lane", "x", encoding="utf-8") as lane:
                lane.write("\n".join([home, str(len(tests)), message["executable"], "--exact", *tests]) + "\n")
            print(f"{crate}.{name}")


main()
