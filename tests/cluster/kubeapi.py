# SPDX-License-Identifier: Apache-2.0
"""Calls to an API server, in the name of anybody that it knows."""
import http.client
import json
import pathlib
import ssl
import threading
from functools import partial
from urllib.parse import quote, urlencode

import yaml

from procs import wait_for

ADMIN = "admin"  # the harness's own account: who has it may do everything

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

CALL_SECONDS = 60


class ApiError(AssertionError):
    """A call of the harness that should have succeeded."""


def compact(value):
    """As kubectl writes JSON but for the order of members: opaque parameters are stored to the byte."""
    return json.dumps(value, separators=(",", ":"))


def selector(**fields):
    """The query part that picks objects by fields, with _ for a dot: spec_nodeName="n1"."""
    return urlencode({"fieldSelector": ",".join(f"{key.replace('_', '.')}={value}" for key, value in fields.items())})


class Client:
    """Of the API server at self.port of this machine.

    Each thread keeps a connection for each user. After forget_connections() all make new ones.
    """

    def __init__(self):
        self.port = self.ca = None
        self._certificates = {}  # user -> (certificate, key); anybody else has a token
        self._kept = threading.local()
        self._generation = 0
        self._kinds = {}

    def forget_connections(self):
        self._generation += 1

    def _connect(self, user):
        context = ssl.create_default_context(cafile=str(self.ca))
        if user in self._certificates:
            context.load_cert_chain(*self._certificates[user])
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=CALL_SECONDS, context=context)

    def _connection(self, user):
        """This thread's; whether it was there already."""
        kept = self._kept.__dict__
        generation, connection = kept.get(user, (None, None))
        if generation == self._generation:
            return connection, True
        if connection:
            connection.close()
        kept[user] = (self._generation, self._connect(user))
        return kept[user][1], False

    def _exchange(self, user, method, path, data, headers):
        connection, used = self._connection(user)
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except BaseException as e:
            connection.close()
            del self._kept.__dict__[user]
            # the server may close a connection that idles
            if used and isinstance(e, (http.client.RemoteDisconnected, ConnectionResetError,
                                             BrokenPipeError, ssl.SSLEOFError)):
                return self._exchange(user, method, path, data, headers)
            raise

    def api(self, method, path, body=None, user=ADMIN, content_type=JSON, accept=JSON):
        """One call: (status, object), or the text if the answer is not JSON. user is ADMIN or a token."""
        headers = {"Accept": accept}
        if user not in self._certificates:
            headers["Authorization"] = f"Bearer {user}"
        if body is not None:
            headers["Content-Type"] = content_type
        data = None if body is None else body if isinstance(body, (bytes, str)) else compact(body)
        status, answer = self._exchange(user, method, path, data, headers)
        try:
            return status, json.loads(answer) if answer else None
        except ValueError:
            return status, answer.decode(errors="replace")

    def ok(self, method, path, body=None, **options):
        """A call that must succeed; returns the object."""
        status, answer = self.api(method, path, body, **options)
        if status >= 300:
            message = answer.get("message") if isinstance(answer, dict) else answer
            raise ApiError(f"{method} {path}: {status}: {message}")
        return answer

    def get(self, path, **options):
        """The object, or None if there is none."""
        status, answer = self.api("GET", path, **options)
        if status != 404 and status >= 300:
            raise ApiError(f"GET {path}: {status}: {answer}")
        return None if status == 404 else answer

    def raw(self, path):
        """The object as it is sent, for what json would not keep."""
        status, answer = self._exchange(ADMIN, "GET", path, None, {"Accept": JSON})
        if status >= 300:
            raise ApiError(f"GET {path}: {status}: {answer}")
        return answer.decode()

    def items(self, path, **options):
        return self.ok("GET", path, **options)["items"]

    # --- manifests

    def _path_of(self, manifest):
        """Of the object's collection."""
        version, kind = manifest["apiVersion"], manifest["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if (version, kind) not in self._kinds:
            for resource in self.ok("GET", root)["resources"]:
                if "/" not in resource["name"]:
                    self._kinds[version, resource["kind"]] = (resource["name"], resource["namespaced"])
        assert (version, kind) in self._kinds, f"the API server has no kind {kind} in {version}"
        plural, namespaced = self._kinds[version, kind]
        if not namespaced:
            return f"{root}/{plural}"
        return f"{root}/namespaces/{manifest['metadata'].get('namespace', 'default')}/{plural}"

    def create(self, manifest, **options):
        """Creates the object where its kind and namespace say; returns it as the server has it."""
        return self.ok("POST", self._path_of(manifest), manifest, **options)

    def apply(self, *manifests):
        """Applies objects, or all objects of YAML files, one after the other. A CRD is there when this
        returns; the objects as the server has them are returned."""
        objects = []
        for manifest in manifests:
            if isinstance(manifest, dict):
                objects.append(manifest)
            else:
                text = pathlib.Path(manifest).read_text(encoding="utf-8")
                objects += [document for document in yaml.safe_load_all(text) if document]
        return [self._apply(manifest) for manifest in objects]

    def _apply(self, manifest):
        path = f"{self._path_of(manifest)}/{quote(manifest['metadata']['name'])}"
        query = "fieldManager=netclaim-tests&force=true"
        applied = self.ok("PATCH", f"{path}?{query}", manifest, content_type=APPLY_PATCH)
        if manifest["kind"] != "CustomResourceDefinition":
            return applied

        self._await_crd(path, manifest["spec"])
        return applied

    def _await_crd(self, path, spec):
        def established():
            conditions = self.ok("GET", path).get("status", {}).get("conditions") or ()
            return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

        def served(root):
            found = (self.get(root) or {}).get("resources", ())
            return any(resource["name"] == spec["names"]["plural"] for resource in found)
        wait_for(established, 60, f"{path} established")
        for version in spec["versions"]:
            if version["served"]:  # it is listed a little later
                wait_for(partial(served, f"/apis/{spec['group']}/{version['name']}"), 60, f"{path} served")
