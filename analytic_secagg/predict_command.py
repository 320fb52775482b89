"""The command ``predict``: what a saved model says of a table's rows."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from analytic_secagg.commands.predict import PredictOptions
from analytic_secagg.console.output_files import OutputFile
from analytic_secagg.errors import DataError, UsageError
from analytic_secagg.federated_model import FederatedModel
from analytic_secagg.site.reading import Reading
from analytic_secagg.site.table import Column, TableSchema


def run(options: PredictOptions) -> int:
    """Print or write a line for each row of the table, in its order."""
    model = FederatedModel.load(options.model)
    schema = _schema(options, model)
    model = _with_names(options, model, schema)
    reading = Reading() if options.reading is None else Reading.read(options.reading)
    try:
        X = schema.features_of(options.table, reading)
    except DataError as error:
        if options.columns is not None:
            raise
        raise UsageError(f"--columns is needed, the schema that all sites share, or else {error}") from error
    text = _as_csv(model, X)
    if options.output is None:
        sys.stdout.write(text)
    else:
        OutputFile(options.output, private=True).write(text)
        print(f"{options.output}: what {options.model} says of {len(X)} rows")
    return 0


def _schema(options: PredictOptions, model: FederatedModel) -> TableSchema:
    if options.columns is not None:
        return TableSchema.read(options.columns)
    if model.features is None:
        raise UsageError(f"--columns is needed, the schema that all sites share: {options.model} names no columns")
    target = {"what is predicted": Column(role="target")}  # a schema has one, and new rows have none
    return TableSchema(columns={name: Column() for name in model.features} | target)


def _with_names(options: PredictOptions, model: FederatedModel, schema: TableSchema) -> FederatedModel:
    """The model with the classes that a schema states, where its file has none.

    Raises:
        UsageError: it was trained on other columns, or classes, than the schema has.
    """
    if model.n_features_in_ != len(schema.features) or model.features not in (None, schema.features):
        raise UsageError(
            f"{options.model} is of {model.n_features_in_} features, and {options.columns} makes "
            f"{len(schema.features)}{' with other names' * (model.n_features_in_ == len(schema.features))}: take the "
            "schema that its sites shared"
        )
    if not schema.classes:
        return model
    if model.classes not in (None, schema.classes):
        raise UsageError(f"{options.model} has other classes than {options.columns}: take the schema of its sites")
    return replace(model, classes=schema.classes)


def _as_csv(model: FederatedModel, X: NDArray[np.float64]) -> str:
    """A line of names and one for each row: its number, the answer, and what it follows from."""
    answers = model.predict(X).reshape(len(X), -1)
    names = [f"prediction {place}" for place in range(answers.shape[1])] if answers.shape[1] > 1 else ["prediction"]
    columns = [*answers.T.tolist()]
    if model.classes is not None:
        is_sure = hasattr(model, "predict_proba")
        names += [f"{'probability' if is_sure else 'score'} of {label}" for label in model.classes]
        columns += (model.predict_proba(X) if is_sure else model.learner.decision_function(model.model, X)).T.tolist()
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(["row", *names])
    lines.writerows(zip(range(1, len(X) + 1), *columns, strict=True))
    return out.getvalue()
