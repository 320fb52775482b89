"""JSON reports from typed records: each field's type is its schema and the text below it its meaning."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable
from enum import IntEnum
from importlib import metadata
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, computed_field
from pydantic.json_schema import GenerateJsonSchema

from analytic_secagg.datasets import Dataset

PACKAGES = ("analytic-secagg", "numpy", "scipy", "cryptography", "scikit-learn", "python-flint", "tenseal", "torch")

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Part = Annotated[float, Field(ge=0, le=1)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
FormatName = Annotated[str, Field(pattern=r"^U?Q[0-9]+\.[0-9]+$")]

T = TypeVar("T")


class Mark(IntEnum):
    """What stands before a finding; all but the first are as they must be."""

    WRONG = 0
    """A promise does not hold."""
    FINE = 1
    """A promise holds."""
    NOTICE = 2
    """Nothing was promised, or a leak is expected; a reader should know."""

    @property
    def css(self) -> str:
        """Its class on a page."""
        return self.name.lower()


Finding = tuple[Mark, str]
"""A sentence, and what stands before it."""


class _Untitled(GenerateJsonSchema):
    """Schemas whose fields have no titles beside their names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class Record(BaseModel):
    """A part of a JSON report, whose readers must ignore names that they do not know."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        from_attributes=True,
        use_attribute_docstrings=True,
        json_schema_serialization_defaults_required=True,
    )

    @classmethod
    def schema_of_report(cls) -> dict[str, Any]:
        """Return the JSON Schema (2020-12) of what ``to_json`` writes."""
        schema = cls.model_json_schema(mode="serialization", schema_generator=_Untitled)
        return {"$schema": GenerateJsonSchema.schema_dialect, **schema}

    def to_document(self) -> dict[str, Any]:
        """Return the record as plain dicts, lists, strings and numbers."""
        return self.model_dump(mode="json", by_alias=True)

    def to_json(self) -> str:
        """Return the record as indented text, with a line break at its end."""
        return json.dumps(self.to_document(), indent=2, allow_nan=False) + "\n"


def computed(method: Callable[[Any], T]) -> T:
    """Declare a property of a record that stands in its report too; its docstring is its meaning there."""
    return cast(T, computed_field(json_schema_extra=_writable)(property(method)))


def _writable(schema: Any) -> None:
    """Take off what pydantic says of a property: who reads a report needs not know which fields are computed."""
    schema.pop("readOnly", None)


class DatasetRecord(Record, title="dataset"):
    """The rows of a report."""

    name: str
    """Name of the bundled data set, or the file's name without its folder and ending."""
    sha256: Sha256
    """Digest of the four arrays with their types and shapes."""
    train_rows: Count
    """Training rows of all clients."""
    test_rows: Count
    """Test rows."""
    features: Count
    """Columns of a feature row."""
    classes: Count
    """One more than the largest label; or columns of real targets."""

    @classmethod
    def of(cls, data: Dataset) -> DatasetRecord:
        """Describe a data set."""
        return cls(
            name=data.name,
            sha256=data.sha256,
            train_rows=len(data.x_train),
            test_rows=len(data.x_test),
            features=data.n_features,
            classes=data.n_classes,
        )


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Return what ran: Python, its platform and the packages that decide the numbers, by name."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # run from a source tree that was never installed
            found[package] = "not installed"
    return found
