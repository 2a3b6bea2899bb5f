"""Shared by tests: commits."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
import pyarrow as pa
import pytest
from postgres_server import PostgresServer
from support.killing import KEYS, kill_tree
from rlfocal.extraction.engine import ChoiceScore, Document
from rlfocal.extraction.engines import hf
from rlfocal.extraction.fingerprint import fingerprint, weights_digest
from rlfocal.extraction.running.events import AlreadyCommitted, Event, Extracted, Progress
from rlfocal.extraction.running.partitions import Job
from rlfocal.extraction.running.worker import extract
from rlfocal.extraction.tasks import TaskDocuments, load_tasks
from rlfocal.pool import load_pool
from rlfocal.pool.specs import ModelSpec, PoolSpec
from warehouse import Warehouse, open_warehouse
from warehouse.locations import locate
from warehouse.snapshots import snapshots

def tables(location: str) -> dict[str, pa.Table]:
    with open_warehouse(location, read_only=True) as warehouse:
        return {name: warehouse.query(f"SELECT * FROM {name} ORDER BY {key}") for name, key in KEYS.items()}


def commits(location: str) -> list[str]:
    """What was ever extracted into a warehouse."""
    with open_warehouse(location, read_only=True) as warehouse:
        said = [snapshot.message or "" for snapshot in snapshots(warehouse)]
    return [message for message in said if message.startswith("extract ")]
