"""Published files: HDF5 built in memory, its sha256 before it, then written, synced and renamed.

So every name holds a complete file at every moment, and h5py opens it as it is. The only importer
of h5py.
"""

import errno
import hashlib
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import h5py
import numpy as np

from esac_mpi.host.errors import OtherSchema, Unreadable, Unsaved, translate_error
from esac_mpi.host.run_directory import regular

SCHEMA = 3  # version of what the files hold
# those of a policy with either, which versions that do not know it so refuse
FORMS = {"linear": 5, "layer_norm": 4}
NEWEST = 5  # to read
USER_BLOCK = 512  # bytes before the HDF5 image
TAIL = "tail"  # group of a history's newest rows, where older ones are in closed files

Arrays = dict[str, np.ndarray]


def nest(group: str, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """Return arrays by their names in a group."""
    return {f"{group}/{name}": np.asarray(array) for name, array in arrays.items()}


def select_group(arrays: Arrays, group: str) -> Arrays:
    """Return the arrays below a group, by their names there."""
    below = f"{group}/"
    return {name.removeprefix(below): a for name, a in arrays.items() if name.startswith(below)}


class Image(NamedTuple):
    """A published file in memory."""

    parts: tuple[bytes, bytes]  # the user block, and HDF5
    sha256: str  # of the latter


class Joined:
    """A column whose older rows are in closed files: a virtual dataset that grows by them.

    So that a publication costs little more in a long run than in a young one.
    """

    def __init__(self, dtype: np.dtype) -> None:
        self.rows = 0  # in closed files, or in none where the column began later
        self._plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        self._plan.set_fill_value(np.array(missing_value(dtype), dtype))

    def add(self, source: str, name: str, start: int, shape: tuple[int, ...]) -> None:
        """Map rows [start, start + shape[0]) to a dataset of a file beside this one."""
        _map(self._plan, source, name, start, shape)

    def write(self, file: h5py.File, name: str, tail: np.ndarray) -> None:
        """Write the newest rows as tail/<name>, and all as `name`."""
        file.create_dataset(f"{TAIL}/{name}", data=tail)
        plan, (group, _, leaf) = self._plan.copy(), name.rpartition("/")
        _map(plan, ".", f"{TAIL}/{name}", self.rows, tail.shape)
        space = h5py.h5s.create_simple((self.rows + len(tail), *tail.shape[1:]))
        kind = h5py.h5t.py_create(tail.dtype, logical=True)
        h5py.h5d.create(file.require_group(group).id, leaf.encode(), kind, space, plan)


def _map(plan: Any, source: str, name: str, start: int, shape: tuple[int, ...]) -> None:
    """Map rows of a virtual dataset, narrower ones where there were fewer ranks."""
    if 0 in shape:
        return
    part = h5py.h5s.create_simple((start + shape[0], *shape[1:]))
    part.select_hyperslab((start, *[0] * (len(shape) - 1)), shape)
    plan.set_virtual(part, source.encode(), name.encode(), h5py.h5s.create_simple(shape))


def missing_value(dtype: np.dtype) -> Any:
    """Stand in for a missing number: nan, or the least of the integers."""
    return np.nan if dtype.kind == "f" else np.iinfo(dtype).min if dtype.kind in "iu" else 0


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a published file's bytes; errors of the system inside become Unreadable."""
    try:
        with open(path, "rb", opener=regular) as stream:
            yield stream
    except OSError as error:
        raise translate_error(path, error) from error


def read(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Read a published file's arrays, but for virtual ones, and attributes. Raises Unreadable."""
    with opened(path) as stream:
        verify(path, stream)
        with open_file(path, stream) as file:
            return {name: array_of(file, name) for name in datasets(file)}, attributes_of(file)


@contextmanager
def open_file(path: Path, stream: BinaryIO) -> Iterator[h5py.File]:
    """Open a published file's bytes, without a lock; errors of h5py inside become Unreadable."""
    try:
        with h5py.File(stream, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise Unreadable(f"{path}: damaged: {error}") from error


def datasets(file: h5py.Group) -> dict[str, tuple[int, ...]]:
    """Return the shape of every dataset by its name.

    But for virtual ones: from a stream, HDF5 crashes on their sources.
    """
    shapes: dict[str, tuple[int, ...]] = {}

    def collect(name: str, node: h5py.Group | h5py.Dataset) -> None:
        if isinstance(node, h5py.Dataset) and not node.is_virtual:
            shapes[name] = node.shape

    file.visititems(collect)
    return shapes


def array_of(file: h5py.Group, name: str) -> np.ndarray:
    """Read the dataset of this name."""
    node = file[name]
    if h5py.check_string_dtype(node.dtype):
        return np.asarray(node.asstr()[()], str)
    return np.asarray(node[()])


def attributes_of(file: h5py.File) -> dict[str, Any]:
    """Return a file's attributes, scalars as Python has them."""
    return {name: v.item() if isinstance(v, np.generic) else v for name, v in file.attrs.items()}


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Hash names, dtypes, shapes and little-endian bytes, in the order of the names: sha256."""
    sha256 = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
        sha256.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        sha256.update(array.tobytes())
    return sha256.hexdigest()


def image(
    arrays: Mapping[str, np.ndarray],
    attributes: Mapping[str, Any],
    joined: Mapping[str, Joined] | None = None,
) -> Image:
    """Build an HDF5 file of the arrays and attributes; joined ones are the columns' newest rows."""
    # by its name HDF5 tells it from one that another thread makes
    unique = f"image-{threading.get_ident()}"
    with h5py.File(unique, "w", driver="core", backing_store=False) as file:
        for name, array in arrays.items():
            array = np.asarray(array)
            if joined and name in joined:
                joined[name].write(file, name, array)
            elif array.dtype.kind == "U":
                file.create_dataset(name, data=array.astype(object), dtype=h5py.string_dtype())
            else:
                file.create_dataset(name, data=array)
        for name, value in attributes.items():
            text = isinstance(value, str)
            file.attrs[name] = value.encode(errors="replace").decode() if text else value
        file.flush()
        content = file.id.get_file_image()
    schema = next((schema for name, schema in FORMS.items() if attributes.get(name)), SCHEMA)
    sha256 = hashlib.sha256(content).hexdigest()
    return Image((_user_block(schema, len(content), sha256), content), sha256)


def _user_block(schema: int, size: int, sha256: str) -> bytes:
    text = f"esac_mpi\nschema {schema}\nbytes {size}\nsha256 {sha256}\n"
    # a flipped bit must not look like another schema
    check = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text}check {check}\n".encode().ljust(USER_BLOCK, b"\0")


class Header(NamedTuple):
    """What a published file says of itself in its first 512 bytes."""

    schema: int
    sha256: str  # of the HDF5 image


def header(path: Path, stream: BinaryIO) -> Header:
    """Read the user block of a whole file. Raises Unreadable; OtherSchema for another version."""
    block = stream.read(USER_BLOCK)
    found = re.match(rb"esac_mpi\nschema (\d+)\nbytes (\d+)\nsha256 ([0-9a-f]{64})\n", block)
    there = os.fstat(stream.fileno()).st_size
    if found is None:
        told = f"not a file of esac_mpi, or its first bytes are damaged ({there:,} bytes)"
        raise Unreadable(f"{path}: {told}")
    schema, size, sha256 = int(found[1]), int(found[2]), found[3].decode()
    if block != _user_block(schema, size, sha256):
        raise Unreadable(f"{path}: its first {USER_BLOCK} bytes are damaged")
    if not SCHEMA <= schema <= NEWEST:
        told = f"schema {schema}, written by another version of esac_mpi"
        raise OtherSchema(f"{path}: {told}; this one reads schemas {SCHEMA} to {NEWEST}")
    if there != size + USER_BLOCK:
        raise Unreadable(f"{path}: truncated: {there - USER_BLOCK:,} of {size:,} bytes")
    return Header(schema, sha256)


def check(path: Path, sha256: str = "") -> None:
    """Raise Unreadable unless a file is there, whole by header and size, and of this sha256."""
    with opened(path) as stream:
        found = header(path, stream)
    if sha256 not in ("", found.sha256):
        raise Unreadable(f"{path}: not the file that was named")


def verify(path: Path, stream: BinaryIO) -> Header:
    """Read the whole file piece by piece and compare it with its user block. Raises Unreadable."""
    found = header(path, stream)
    sha256 = hashlib.sha256()
    while piece := stream.read(2**20):
        sha256.update(piece)
    if sha256.hexdigest() != found.sha256:
        raise Unreadable(f"{path}: damaged: its sha256 differs from the one written with it")
    return found


def replace(path: Path, parts: Sequence[bytes], previous: bool = False) -> int:
    """Replace a file by the parts; previous=True keeps the old one as *_prev. Raises Unsaved.

    Returns what was written [bytes].
    """
    size = sum(map(len, parts))
    temporary = path.with_name(f"{path.name}.tmp.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        if previous and path.exists():
            _keep(path)
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except OSError as error:
        room = f"needed {size:,} bytes, free {describe_free(path.parent)}"
        raise Unsaved(f"{path}: {error.strerror}; {room}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    return size


def _keep(path: Path) -> None:
    """Give the file its second name, *_prev, without a moment in which the first is missing."""
    previous = path.with_name(f"{path.stem}_prev{path.suffix}")
    link = path.with_name(f"{previous.name}.tmp.{os.getpid()}")
    link.unlink(missing_ok=True)  # where the rename below failed before
    try:
        os.link(path, link)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        # no hard links here: until the next rename, *_prev is the one to read
        os.replace(path, previous)
        return
    os.replace(link, previous)
    with suppress(FileNotFoundError):
        link.unlink()  # rename does nothing where both names are one file already


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    except OSError as error:
        # some network file systems cannot, and need not
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(directory)


def describe_free(path: Path) -> str:
    """Return the free space of the disk that holds the directory, or will, in words."""
    try:
        disk = os.statvfs(next(p for p in (path, *path.parents) if p.exists()))
    except OSError as error:
        return f"unknown ({error.strerror})"
    free = f"{disk.f_bavail * disk.f_frsize:,} bytes"
    # some file systems have no such limit, and count none
    return f"{free} but no inodes: remove files" if disk.f_files and not disk.f_favail else free
