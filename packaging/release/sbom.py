#!/usr/bin/env python3
"""Prints the bill of materials (CycloneDX 1.5, JSON) of the released programs: sbom.py TARGET VERSION EPOCH PACKAGE…

It lists the workspace crates and external crates that the programs of the given packages are linked or built with on the target,
with licenses, package URLs and checksums of Cargo.lock. Crates used only by tests are not part of it. The output depends
only on Cargo.toml, Cargo.lock and the arguments.
"""
import datetime
import json
import subprocess
import sys
import tomllib
import uuid

NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # URL, RFC 4122


def component(package, checksums):
    reference = f"pkg:cargo/{package['name']}@{package['version']}"
    entry = {"type": "library", "bom-ref": reference, "name": package["name"], "version": package["version"], "purl": reference}
    if package["license"]:
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return entry


def main():
    target, version, epoch, *roots = sys.argv[1:]
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform", target]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    with open("Cargo.lock", "rb") as file:
        checksums = {(one["name"], one["version"]): one.get("checksum") for one in tomllib.load(file)["package"]}
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    members = {packages[member]["name"]: member for member in metadata["workspace_members"]}
    graph, waiting = {}, [members[root] for root in roots]
    while waiting:
        name = waiting.pop()
        if name not in graph:
            # `dev` is the kind of dependencies of tests.
            graph[name] = sorted(one["pkg"] for one in nodes[name]["deps"] if any(kind["kind"] != "dev" for kind in one["dep_kinds"]))
            waiting += graph[name]
    components = {name: component(packages[name], checksums) for name in graph}
    ordered = sorted(graph, key=lambda name: components[name]["bom-ref"])
    time = datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": uuid.uuid5(NAMESPACE, json.dumps([version, target, epoch, [components[name] for name in ordered]])).urn,
        "version": 1,
        "metadata": {
            "timestamp": time,
            "component": {
                "type": "application", "bom-ref": "tidegate", "name": "tidegate", "version": version,
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": [components[name] for name in ordered],
        "dependencies": [{"ref": "tidegate", "dependsOn": sorted(components[members[root]]["bom-ref"] for root in roots)}]
        + [
            {"ref": components[name]["bom-ref"], "dependsOn": [components[one]["bom-ref"] for one in graph[name]]}
            for name in ordered
        ],
    }
    json.dump(document, sys.stdout, indent=1, ensure_ascii=False)
    print()


main()
