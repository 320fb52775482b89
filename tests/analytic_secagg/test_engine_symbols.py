"""Every symbol inside Flower and NVFlare that this package replaces or empties: an upgrade fails here first."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path

import pytest

import analytic_secagg

IN_APPS = ("pull_and_inflate_object_from_tree", "pull_objects")
"""Functions of ``flwr.supercore.inflatable.inflatable_utils`` that are called with a shorter first pause."""

NVFLARE = (
    ("nvflare.private.fed.client.client_req_processors", "ClientRequestProcessors", "request_processors"),
    ("nvflare.private.fed.client.admin_commands", "AdminCommands", "commands"),
)
"""Lists that ``analytic_secagg.nvflare.guard`` shortens in place."""


def replacements() -> set[tuple[str, str]]:
    """What ``analytic_secagg.flower.replaced`` replaces: where Flower's own code looks a name up."""
    source = Path(analytic_secagg.__file__).parent / "flower" / "replaced.py"
    calls = [node for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    asked = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "replace"]
    return {
        (call.args[0].value, str(keyword.arg))
        for call in asked
        if isinstance(call.args[0], ast.Constant)
        for keyword in call.keywords
    }


@pytest.mark.parametrize(("module", "name"), sorted(replacements()))
def test_flower_looks_up_what_is_replaced(module: str, name: str) -> None:
    """The name is there, and code of the module uses it: a name that is left over would be replaced without effect."""
    pytest.importorskip("flwr", reason="needs the extra: pip install '.[flower]'")
    found = import_module(module)
    assert hasattr(found, name)
    used = [node.id for node in ast.walk(ast.parse(inspect.getsource(found))) if isinstance(node, ast.Name)]
    assert name in used


@pytest.mark.parametrize("name", IN_APPS)
def test_flower_s_functions_take_a_first_pause(name: str) -> None:
    pytest.importorskip("flwr", reason="needs the extra: pip install '.[flower]'")
    function = getattr(import_module("flwr.supercore.inflatable.inflatable_utils"), name)
    assert "initial_backoff" in inspect.signature(function).parameters


@pytest.mark.parametrize(("module", "holder", "name"), NVFLARE)
def test_nvflare_has_the_lists_that_the_guard_shortens(module: str, holder: str, name: str) -> None:
    pytest.importorskip("nvflare", reason="needs the extra: pip install '.[nvflare]'")
    assert isinstance(getattr(getattr(import_module(module), holder), name), list)


def test_nvflare_s_diagnostics_have_the_names_that_the_guard_refuses() -> None:
    """Handlers begin with ``_do_`` and are registered by these names: the agent's code has a use of each."""
    pytest.importorskip("nvflare", reason="needs the extra: pip install '.[nvflare]'")
    agent = import_module("nvflare.fuel.f3.cellnet.net_agent").NetAgent
    handlers = {name for name in vars(agent) if name.startswith("_do_")}
    assert len(handlers) >= 10
    registered = {
        node.attr
        for node in ast.walk(ast.parse(inspect.getsource(inspect.getmodule(agent))))
        if isinstance(node, ast.Attribute)  # type: ignore[arg-type]
    }
    assert handlers <= registered
