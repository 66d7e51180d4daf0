#!/usr/bin/env python3
"""Packs one image as an archive that `docker load`, `podman load` and `skopeo` read, without a container engine.

Usage: archive.py CONTEXT IMAGE:TAG ARCHITECTURE OUT, where CONTEXT has a `Dockerfile` that begins with `FROM scratch`.

The archive is an OCI image layout with the `manifest.json` of `docker save`. The same files make the same bytes: every time is
SOURCE_DATE_EPOCH. The instructions are those that the images of this directory use; any other is an error.
"""

import datetime
import hashlib
import io
import json
import os
import pathlib
import re
import shlex
import sys
import tarfile

# Nanoseconds, as in the format of images.
UNITS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9}


def instructions(text):
    """Yields the instructions of a Dockerfile with their arguments as one line."""
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        yield word.upper(), rest.strip()


def health_check(rest):
    options, _, command = rest.partition("CMD ")
    check = {"Test": ["CMD", *json.loads(command)]}
    names = {"interval": "Interval", "timeout": "Timeout", "start-period": "StartPeriod", "retries": "Retries"}
    for option in shlex.split(options):
        name, value = re.fullmatch(r"--([a-z-]+)=(\w+)", option).groups()
        number, unit = re.fullmatch(r"(\d+)(ms|s|m)?", value).groups()
        check[names[name]] = int(number) * UNITS.get(unit, 1)
    return check


class Image:
    """Configuration and files of an image."""

    def __init__(self, context, epoch):
        self.config = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}
        self._context = context
        self._epoch = epoch
        self._entries = {}

    def read(self, dockerfile):
        for word, rest in instructions(dockerfile):
            if word == "FROM":
                if rest != "scratch":
                    sys.exit(f"FROM {rest}: an image that is packed without an engine begins FROM scratch")
            elif word == "LABEL":
                self.config.setdefault("Labels", {}).update(pair.split("=", 1) for pair in shlex.split(rest))
            elif word == "COPY":
                self._copy(shlex.split(rest))
            elif word == "USER":
                self.config["User"] = rest
            elif word == "WORKDIR":
                self.config["WorkingDir"] = rest
            elif word == "EXPOSE":
                self.config["ExposedPorts"] = {port: {} for port in rest.split()}
            elif word == "HEALTHCHECK":
                self.config["Healthcheck"] = health_check(rest)
            elif word == "ENTRYPOINT":
                self.config["Entrypoint"] = json.loads(rest)
            else:
                sys.exit(f"{word}: this instruction is not supported here")

    def _copy(self, words):
        owner = (0, 0)
        if words[0].startswith("--chown="):
            owner = tuple(int(number) for number in words.pop(0).removeprefix("--chown=").split(":"))
        source, target = self._context / words[0], words[1].strip("/")
        for path in [source, *source.rglob("*")]:
            name = "/".join(filter(None, [target, path.relative_to(source).as_posix().removeprefix(".")]))
            if name:
                self._entries[name] = (path, owner)
        # Directories above the target, which the source does not have.
        for parent in pathlib.PurePosixPath(target).parents:
            if str(parent) != ".":
                self._entries.setdefault(str(parent), (source, (0, 0)))

    def layer(self):
        """Returns the files as an uncompressed archive."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for name, (path, owner) in sorted(self._entries.items()):
                entry = archive.gettarinfo(path, name)
                # Two names of one file are two files.
                if entry.islnk():
                    entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
                entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime = *owner, "", "", self._epoch
                if entry.isfile():
                    with open(path, "rb") as file:
                        archive.addfile(entry, file)
                else:
                    archive.addfile(entry)
        return out.getvalue()


def main():
    context, name, architecture, target = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    image = Image(context, epoch)
    image.read((context / "Dockerfile").read_text(encoding="utf-8"))
    version = name.rpartition(":")[2]
    image.config.setdefault("Labels", {})["org.opencontainers.image.version"] = version
    layer = image.layer()
    files = {}

    def blob(content, media_type):
        digest = hashlib.sha256(content).hexdigest()
        files[f"blobs/sha256/{digest}"] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def document(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    layer_blob = blob(layer, "application/vnd.oci.image.layer.v1.tar")
    created = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": image.config,
        "rootfs": {"type": "layers", "diff_ids": [layer_blob["digest"]]},
        "history": [{"created": created, "created_by": "packaging/container/archive.py"}],
    }
    config_blob = blob(document(config), "application/vnd.oci.image.config.v1+json")
    manifest_type = "application/vnd.oci.image.manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": manifest_type, "config": config_blob, "layers": [layer_blob]}
    manifest_blob = blob(document(manifest), manifest_type)
    manifest_blob["annotations"] = {"io.containerd.image.name": f"docker.io/library/{name}", "org.opencontainers.image.ref.name": version}
    files["oci-layout"] = document({"imageLayoutVersion": "1.0.0"})
    files["index.json"] = document({"schemaVersion": 2, "manifests": [manifest_blob]})
    path = {key: value["digest"].replace("sha256:", "blobs/sha256/") for key, value in (("Config", config_blob), ("layer", layer_blob))}
    files["manifest.json"] = document([{"Config": path["Config"], "RepoTags": [name], "Layers": [path["layer"]]}])

    with tarfile.open(target, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for file_name, content in sorted(files.items()):
            entry = tarfile.TarInfo(file_name)
            entry.size, entry.mtime, entry.mode = len(content), epoch, 0o644
            archive.addfile(entry, io.BytesIO(content))


main()
