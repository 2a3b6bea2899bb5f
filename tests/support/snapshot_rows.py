"""Shared by tests: snapshot rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any
import numpy as np
import pyarrow as pa
import pytest
from support.rows import SCORES, THREE, answer_rows, choice_rows, docs, extraction
from rlfocal.base.errors import InputError
from rlfocal.exchange.sql import run_sql
from warehouse import Warehouse, open_warehouse
from warehouse.snapshots import QUANTILES, PartitionChange, RowChange, diff, snapshots

OTHER = {"benchmark": "answers"}


def put(warehouse: Warehouse, scores: list[list[float]], model: str = "m", **settings: Any) -> int:
    record = extraction(model, n_docs=len(scores)) | settings
    warehouse.put_partition(docs(len(scores)), choice_rows(scores, model), record)
    return warehouse.snapshot()


def put_answers(warehouse: Warehouse, passes: list[list[str | None]], texts: list[str]) -> int:
    given = docs(len(passes)).drop_columns(["choices", "label"])
    rows = answer_rows(passes)
    for name, value in OTHER.items():
        given = given.set_column(given.column_names.index(name), name, pa.array([value] * len(given)))
        rows = rows.set_column(rows.column_names.index(name), name, pa.array([value] * len(rows)))
    warehouse.put_partition(
        given, rows.append_column("text", pa.array(texts)), extraction(n_docs=len(passes)) | OTHER
    )
    return warehouse.snapshot()
