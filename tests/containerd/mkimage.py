#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""mkimage.py BINARY OUT.tar REFERENCE: an OCI image layout as a tar archive.

The image has one layer with one file, BINARY as /pause, and runs it. To be imported with
`ctr images import OUT.tar`. The same input gives the same bytes.
"""
import gzip
import hashlib
import io
import json
import sys
import tarfile

LAYOUT = "application/vnd.oci.image"


def tar(files):
    """files: (name, content), content None for a directory"""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.mode = 0o755
            if content is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content or b""))
    return out.getvalue()


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


class Layout:
    def __init__(self):
        self.files = [("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'), ("blobs", None), ("blobs/sha256", None)]

    def blob(self, kind, content):
        """Adds it and returns its descriptor."""
        self.files.append(("blobs/sha256/" + digest(content).split(":")[1], content))
        return {"mediaType": f"{LAYOUT}.{kind}", "digest": digest(content), "size": len(content)}

    def json_blob(self, kind, content):
        return self.blob(kind, json.dumps(content).encode())


def main():
    binary, out, reference = sys.argv[1:]
    with open(binary, "rb") as f:
        layer = tar([("pause", f.read())])
    layout = Layout()
    config = layout.json_blob("config.v1+json", {
        "architecture": "amd64", "os": "linux",
        "config": {"Entrypoint": ["/pause"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
    })
    manifest = layout.json_blob("manifest.v1+json", {
        "schemaVersion": 2, "mediaType": f"{LAYOUT}.manifest.v1+json", "config": config,
        "layers": [layout.blob("layer.v1.tar+gzip", gzip.compress(layer, mtime=0))],
    })
    manifest["annotations"] = {"io.containerd.image.name": reference}
    index = {"schemaVersion": 2, "manifests": [manifest]}
    layout.files.append(("index.json", json.dumps(index).encode()))
    with open(out, "wb") as f:
        f.write(tar(layout.files))


if __name__ == "__main__":
    main()
