"""The JSON Schemas that follow from the records are the published ones, and the reference says all that is in them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest

from benchmarks.command import COMMAND as BENCH
from simulations.__main__ import EXPERIMENTS

ROOT = Path(__file__).resolve().parents[3]
PUBLISHED = {"compare": "compare-9.json", "audit": "audit-5.json"}
WORDS = ("title", "description", "default", "$schema", "$id", "$defs")
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
KEYWORDS = {"array": ("items", "minItems"), "object": ("additionalProperties",), "number": BOUNDS, "integer": BOUNDS}


def accepted(entry: Any, parts: dict[str, Any]) -> Any:
    """What a schema accepts, written one way: no words, no references, alternatives instead of lists of types."""
    entry = {key: value for key, value in entry.items() if key not in WORDS}
    if "$ref" in entry:
        return accepted({**parts[entry.pop("$ref").rpartition("/")[2]], **entry}, parts)
    if isinstance(entry.get("type"), list):
        shared = {key: value for key, value in entry.items() if key not in ("type", *sum(KEYWORDS.values(), ()))}
        entry = {
            "anyOf": [
                {"type": one, **shared, **{key: entry[key] for key in KEYWORDS.get(one, ()) if key in entry}}
                for one in entry["type"]
            ]
        }
    if "anyOf" in entry:
        return {"anyOf": sorted((accepted(one, parts) for one in entry["anyOf"]), key=json.dumps)}
    if "enum" in entry or "const" in entry:
        entry.pop("type", None)
    if "properties" in entry:
        entry["properties"] = {name: accepted(value, parts) for name, value in entry["properties"].items()}
        entry["required"] = sorted(entry["required"])
    for key in ("items", "additionalProperties"):
        if isinstance(entry.get(key), dict):
            entry[key] = accepted(entry[key], parts)
    return {key: value for key, value in sorted(entry.items()) if (key, value) != ("additionalProperties", True)}


@pytest.fixture(scope="module")
def declared() -> ModuleType:
    """What fills the pages when the site is built."""
    spec = importlib.util.spec_from_file_location("declared", ROOT / "docs" / "declared.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_schema_accepts_what_its_version_did(name: str, declared: ModuleType) -> None:
    """A name that goes away, changes its meaning or is asked for anew shows here, and raises the version."""
    schema = declared.REPORTS[name].schema_of_report()
    jsonschema.Draft202012Validator.check_schema(schema)
    stored = (Path(__file__).parent / "schemas" / PUBLISHED[name]).read_text(encoding="utf-8")
    assert accepted(schema, schema["$defs"]) == json.loads(stored)


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_name_of_a_report_is_asked_for_and_has_a_meaning(name: str, declared: ModuleType) -> None:
    schema = declared.REPORTS[name].schema_of_report()
    tables = declared.report(name)
    for part in (schema, *schema["$defs"].values()):
        assert part.get("required", []) == list(part.get("properties", []))
        for field, entry in part.get("properties", {}).items():
            assert f"| `{field}` | " in tables
            assert f"| {entry['description']} |".replace("\n", " ") in tables


@pytest.mark.parametrize(
    "command", [*(listed.load() for listed in EXPERIMENTS), BENCH], ids=lambda command: command.name
)
def test_every_option_of_a_command_is_in_its_table(command: Any, declared: ModuleType) -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    assert f"<!-- options: {command.name} -->" in page
    table = declared.fill(f"<!-- options: {command.name} -->")
    flags = [line.split("`")[1].split()[0] for line in table.splitlines()[2:]]
    assert len(flags) >= 4
    assert flags == sorted(set(flags), key=flags.index)
    assert "--json" in flags or command.name in ("features", "parameters")
