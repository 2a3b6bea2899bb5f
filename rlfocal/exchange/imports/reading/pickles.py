"""Pickles of numpy arrays, read without running anything they ask for.

A pickle is a program. Only calls that build a numpy array are allowed, and these are carried out here, with
`frombuffer` on the bytes it holds; numpy's own unpickling never runs.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlfocal.base.errors import InputError

_KINDS = "biuf"


def load_arrays(path: Path) -> Any:
    """The lists, tuples, dicts, texts, numbers and numeric numpy arrays of a pickle.

    Raises InputError for anything else, before it is made, and for a file that is not a complete pickle.
    """
    try:
        content = path.read_bytes()
        _check_memo(content)
        return _finish(_Reader(io.BytesIO(content), path).load(), {})
    except InputError:
        raise
    except MemoryError:
        raise InputError(f"{path} needs more memory than there is; it is truncated or not a pickle") from None
    # A broken pickle can fail in any way that an opcode can.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} is truncated or not a pickle of numpy arrays: {reason:.200}") from None


def _check_memo(content: bytes) -> None:
    """Refuses memo indices so large that the unpickler would allocate too much memory."""
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and (argument or 0) > len(content):
            raise ValueError(f"it numbers {argument} objects in {len(content)} bytes")


class _Named:
    """What a pickle may name: it can be called but not changed; opcodes could change a function."""

    __slots__ = ("_made",)

    def __init__(self, made: Callable[..., Any]) -> None:
        self._made = made

    def __call__(self, *arguments: Any) -> Any:
        return self._made(*arguments)

    def __setstate__(self, _: Any) -> None:
        raise ValueError("it changes a function that it calls")


class _DType:
    def __init__(self, name: Any = "", *_: Any) -> None:
        if not isinstance(name, str):
            raise ValueError(f"a numpy type is named by a {type(name).__name__}")
        self.found: np.dtype[Any] = np.dtype(name)
        if self.found.kind not in _KINDS:
            raise ValueError(f"its arrays hold {name!r}, but only numbers are read")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.found = self.found.newbyteorder(state[1])


class _Array:
    """An unfinished array: `_reconstruct` makes it empty, the pickle's state fills it."""

    def __init__(self) -> None:
        self.value: NDArray[Any] = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, is_fortran, content = state
        self.value = _shape(content, kind, shape, "F" if is_fortran else "C")


def _shape(content: Any, kind: _DType, shape: Any, order: str) -> NDArray[Any]:
    if not isinstance(content, bytes | bytearray):
        raise ValueError("an array's content is not bytes")
    sizes = tuple(int(size) for size in shape)
    flat = np.frombuffer(bytes(content), kind.found)
    if any(size < 0 for size in sizes) or math.prod(sizes) != flat.size:
        raise ValueError(f"{flat.size} numbers do not make an array of shape {sizes}")
    return flat.reshape(sizes, order="F" if order == "F" else "C").copy()


def _empty(*_: Any) -> _Array:
    return _Array()


def _from_buffer(content: Any, kind: _DType, shape: Any, order: str) -> _Array:
    made = _Array()
    made.value = _shape(content, kind, shape, order)
    return made


def _scalar(kind: _DType, content: Any) -> Any:
    return _shape(content, kind, (), "C").item()


def _bytes(text: str, encoding: str) -> bytes:
    # Protocols before 3 write bytes as text.
    if encoding != "latin1":
        raise ValueError(f"bytes as {encoding!r} text")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""


def _class(*_: Any) -> Any:
    raise ValueError("it builds an array directly")


_ADMITTED = {
    ("numpy", "ndarray"): _Named(_class),
    ("numpy", "dtype"): _Named(_DType),
    ("_codecs", "encode"): _Named(_bytes),
    ("__builtin__", "bytes"): _Named(_no_bytes),
}
# numpy 2 renamed the module; files of both exist.
for _core in ("numpy.core", "numpy._core"):
    _ADMITTED[f"{_core}.multiarray", "_reconstruct"] = _Named(_empty)
    _ADMITTED[f"{_core}.multiarray", "scalar"] = _Named(_scalar)
    _ADMITTED[f"{_core}.numeric", "_frombuffer"] = _Named(_from_buffer)


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, path: Path) -> None:
        super().__init__(file)
        self._path = path

    def find_class(self, module: str, name: str) -> _Named:
        found = _ADMITTED.get((module, name))
        if found is None:
            raise InputError(
                f"{self._path} refers to {module}.{name}, but only numpy arrays are read from a pickle: "
                "nothing in it was run. Save the arrays alone, or import them as predictions"
            )
        return found


def _finish(value: Any, known: dict[int, Any]) -> Any:
    """The value with its arrays in place. Raises ValueError for anything but a plain value.

    `known` holds finished values: a few lists nested in each other could otherwise expand to billions.
    """
    if isinstance(value, _Array):
        return value.value
    if isinstance(value, list | tuple | dict):
        if id(value) not in known:
            known[id(value)] = (
                {_finish(key, known): _finish(item, known) for key, item in value.items()}
                if isinstance(value, dict)
                else [_finish(item, known) for item in value]
            )
        return known[id(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"it holds a {type(value).__name__.strip('_')}")
