"""Checks that generated clients have every operation of an OpenAPI document.

Arguments: document, log and directory of openapi-python-client, file of openapi-typescript.
"""

import json
import re
import sys
from pathlib import Path

document, log, python, typescript = map(Path, sys.argv[1:])

paths = json.loads(document.read_text())["paths"]
operations = [operation["operationId"] for item in paths.values() for operation in item.values()]
# Names of files are in snake case.
files = {file.stem.replace("_", "") for file in (python / "api").glob("*/*.py")}
types = typescript.read_text()
types = types[types.index("export interface operations") :]

faults = []
for operation in operations:
    if operation.lower() not in files:
        faults.append(f"openapi-python-client left out {operation}")
    if not re.search(rf"^    {operation}: {{$", types, re.MULTILINE):
        faults.append(f"openapi-typescript left out {operation}")
# Other warnings lose no operation: each also takes JSON, and no generated client reads the streams.
lost = ("will not be generated", "Unable to process")
faults += [line for line in log.read_text().splitlines() if any(words in line for words in lost)]

print(f"{document.name}: {len(operations)} operations in both clients, {len(faults)} faults")
sys.exit("\n".join(faults) or 0)
