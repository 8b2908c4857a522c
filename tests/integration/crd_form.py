# SPDX-License-Identifier: Apache-2.0
"""What an API server makes of an object by its CustomResourceDefinition, in small: fields that are not
in the definition are dropped, defaults are filled in, and what is then there is accepted or refused.
It knows the keywords that k8s/crds uses and fails on any other; tests/cluster holds it against real
servers.
"""
import copy
import re

TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
KEYWORDS = {"type", "description", "format", "default", "required", "properties", "additionalProperties", "items",
            "enum", "pattern", "minimum", "minLength", "maxLength", "minItems", "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-validations"}
IMMUTABLE = "self == oldSelf"


class Refused(Exception):
    """What is wrong, one "path: what" for each."""


class Form:
    """The schema of a definition's one version."""

    def __init__(self, definition):
        [version] = definition["spec"]["versions"]
        self.schema = version["schema"]["openAPIV3Schema"]
        self.kind = definition["spec"]["names"]["kind"]
        self.api_version = f"{definition['spec']['group']}/{version['name']}"

    def store(self, given, old=None):
        """The object as it would be stored; old is the one that it replaces."""
        assert (given["apiVersion"], given["kind"]) == (self.api_version, self.kind)
        stored = _complete(copy.deepcopy(given), self.schema)
        stored["metadata"] = given["metadata"]  # Kubernetes' own
        wrong = list(_validate(stored, self.schema, "", old))
        if wrong:
            raise Refused("; ".join(wrong))
        return stored


def nodes(schema, path=""):
    """All of a schema's nodes, as (path, node)."""
    yield path, schema
    for name, sub in schema.get("properties", {}).items():
        yield from nodes(sub, f"{path}.{name}")
    for name in "items", "additionalProperties":
        if name in schema:
            yield from nodes(schema[name], f"{path}[]")


def _complete(value, schema):
    """Without what the schema does not have, with its defaults. A null is as if it were not there."""
    if isinstance(value, list) and "items" in schema:
        return [_complete(item, schema["items"]) for item in value]
    if not isinstance(value, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return value
    if "additionalProperties" in schema or "properties" not in schema:
        return value if "additionalProperties" in schema else {}
    value = {name: item for name, item in value.items() if name in schema["properties"] and item is not None}
    for name, sub in schema["properties"].items():
        if name not in value and "default" in sub:
            value[name] = sub["default"]
    return {name: _complete(item, schema["properties"][name]) for name, item in value.items()}


def _validate(value, schema, path, old):
    unknown = set(schema) - KEYWORDS
    assert not unknown, f"{path}: {unknown}"
    wanted = TYPES[schema["type"]]
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        yield f"{path}: must be of type {schema['type']}"
        return
    yield from _bounds(value, schema, path)
    for rule in schema.get("x-kubernetes-validations", ()):
        assert rule["rule"] == IMMUTABLE, rule
        if old is not None and value != old:
            yield f"{path}: {rule['message']}"
    if isinstance(value, dict):
        yield from _validate_fields(value, schema, path, old if isinstance(old, dict) else {})
    if isinstance(value, list):
        yield from _validate_items(value, schema, path, old if isinstance(old, list) else [])


def _bounds(value, schema, path):
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: is not one of {schema['enum']}"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{path}: does not match {schema['pattern']}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{path}: is less than {schema['minimum']}"
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield f"{path}: is longer than {schema['maxLength']}"
    if "minLength" in schema and len(value) < schema["minLength"]:
        yield f"{path}: is shorter than {schema['minLength']}"
    if "minItems" in schema and len(value) < schema["minItems"]:
        yield f"{path}: has fewer than {schema['minItems']} items"


def _validate_fields(value, schema, path, old):
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name}: is required"
    for name, item in value.items():
        sub = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
        if sub and not (path == "" and name == "metadata"):
            yield from _validate(item, sub, f"{path}.{name}", old.get(name))


def _validate_items(value, schema, path, old):
    """Items of a list that is a map correspond to the old ones by their keys, others to none."""
    keys = schema.get("x-kubernetes-list-type") == "map" and schema["x-kubernetes-list-map-keys"]

    def key_of(item):
        return tuple(item.get(key) for key in keys) if keys and isinstance(item, dict) else None
    before = {key_of(item): item for item in old} if keys else {}
    seen = set()
    for i, item in enumerate(value):
        key = key_of(item)
        if key is not None and key in seen:
            yield f"{path}[{i}]: duplicate"
        seen.add(key)
        yield from _validate(item, schema["items"], f"{path}[{i}]", before.get(key) if keys else None)
