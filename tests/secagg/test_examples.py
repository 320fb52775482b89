"""Every example in a docstring of `secagg` runs, and every class of a public face has one."""

import doctest
import inspect
import pkgutil
from importlib import import_module, util

import pytest

import secagg
import secagg.committee
import secagg.dp
import secagg.encryption
import secagg.errors

FACES = (secagg, secagg.committee, secagg.dp, secagg.encryption)
MODULES = ["secagg", *(module.name for module in pkgutil.walk_packages(secagg.__path__, "secagg."))]
NEED_TENSEAL = "secagg.encryption."


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    if name.startswith(NEED_TENSEAL) and not util.find_spec("tenseal"):
        pytest.skip("the examples of encryption need TenSEAL: pip install '.[he]'")
    assert doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS).failed == 0


def test_every_class_of_a_face_has_an_example() -> None:
    """An error needs none: its name and its text say when it is raised."""
    named = {getattr(face, name) for face in FACES for name in face.__all__}
    classes = [one for one in named if inspect.isclass(one) and not issubclass(one, Exception)]
    without = sorted(one.__qualname__ for one in classes if ">>>" not in (one.__doc__ or ""))
    assert not without, "give each of these classes one short example"


def test_every_error_can_be_caught_by_a_public_name() -> None:
    """Among them ``HelperDisputeError``, whose ``disputes`` say which helper to do without."""
    defined = {name for name, thing in vars(secagg.errors).items() if isinstance(thing, type)}
    assert defined <= set(secagg.__all__)
