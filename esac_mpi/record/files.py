"""Published files: an HDF5 image built in memory, its sha256 in a 512-byte user block, a temporary name, fsync, rename, fsync of
the directory. So every name holds a complete file at every moment, and h5py opens it as it is. The only importer of h5py.
"""

import errno
import hashlib
import io
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from esac_mpi.record.errors import OtherSchema, Unreadable, Unsaved

SCHEMA = 2  # version of what the files hold
USER_BLOCK = 512  # bytes before the HDF5 image

Arrays = dict[str, np.ndarray]


def publish(path: Path, arrays: Mapping[str, np.ndarray], attributes: Mapping[str, Any], previous: bool = False) -> int:
    """Replace `path` by an HDF5 file of the arrays and attributes; return its size [bytes].

    Array names may contain '/'. previous=True keeps the file that was there under its name with _prev. Raises Unsaved.
    """
    image = _image(arrays, attributes)
    block = _user_block(SCHEMA, len(image), hashlib.sha256(image).hexdigest())
    replace(path, (block, image), previous)
    return len(block) + len(image)


def read(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays and attributes of a published file. Raises Unreadable, saying what is wrong with it."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
    _check(path, content)
    arrays: Arrays = {}

    def collect(name: str, node: h5py.Group | h5py.Dataset) -> None:
        if isinstance(node, h5py.Dataset):
            arrays[name] = np.asarray(node.asstr()[()], str) if h5py.check_string_dtype(node.dtype) else np.asarray(node[()])

    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            file.visititems(collect)
            return arrays, {name: v.item() if isinstance(v, np.generic) else v for name, v in file.attrs.items()}
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise Unreadable(f"{path}: damaged: {error}") from error


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the sha256 over names, dtypes, shapes and little-endian bytes, in the order of the names."""
    sha256 = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
        sha256.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        sha256.update(array.tobytes())
    return sha256.hexdigest()


def _image(arrays: Mapping[str, np.ndarray], attributes: Mapping[str, Any]) -> bytes:
    with h5py.File("image", "w", driver="core", backing_store=False) as file:
        for name, array in arrays.items():
            array = np.asarray(array)
            if array.dtype.kind == "U":
                file.create_dataset(name, data=array.astype(object), dtype=h5py.string_dtype())
            else:
                file.create_dataset(name, data=array)
        for name, value in attributes.items():
            file.attrs[name] = value.encode(errors="replace").decode() if isinstance(value, str) else value
        file.flush()
        return file.id.get_file_image()


def _user_block(schema: int, size: int, sha256: str) -> bytes:
    text = f"esac_mpi\nschema {schema}\nbytes {size}\nsha256 {sha256}\n"
    check = hashlib.sha256(text.encode()).hexdigest()[:16]  # a flipped bit must not look like another schema
    return f"{text}check {check}\n".encode().ljust(USER_BLOCK, b"\0")


def _check(path: Path, content: bytes) -> None:
    """Raise Unreadable unless the content agrees with its user block."""
    block, image = content[:USER_BLOCK], memoryview(content)[USER_BLOCK:]
    found = re.match(rb"esac_mpi\nschema (\d+)\nbytes (\d+)\nsha256 ([0-9a-f]{64})\n", block)
    if found is None:
        raise Unreadable(f"{path}: not a file of esac_mpi, or its first bytes are damaged ({len(content):,} bytes)")
    schema, size, sha256 = int(found[1]), int(found[2]), found[3].decode()
    if block != _user_block(schema, size, sha256):
        raise Unreadable(f"{path}: its first {USER_BLOCK} bytes are damaged")
    if schema != SCHEMA:
        raise OtherSchema(f"{path}: schema {schema}, written by another version of esac_mpi; this one reads schema {SCHEMA}")
    if len(image) != size:
        raise Unreadable(f"{path}: truncated: {len(image):,} of {size:,} bytes")
    if hashlib.sha256(image).hexdigest() != sha256:
        raise Unreadable(f"{path}: damaged: its sha256 differs from the one written with it")


def replace(path: Path, parts: Iterable[bytes], previous: bool = False) -> None:
    """Replace a file by the parts, one after the other; previous=True keeps the old one as *_prev. Raises Unsaved."""
    parts = tuple(parts)
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
        raise Unsaved(f"{path}: {error.strerror}; needed {sum(map(len, parts)):,} bytes, free {_free(path)}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _keep(path: Path) -> None:
    """Give the file its second name, *_prev, without a moment in which the first is missing."""
    previous = path.with_name(f"{path.stem}_prev{path.suffix}")
    link = path.with_name(f"{previous.name}.tmp.{os.getpid()}")
    try:
        os.link(path, link)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        os.replace(path, previous)  # no hard links here: until the next rename, *_prev is the one to read
        return
    os.replace(link, previous)
    with suppress(FileNotFoundError):
        link.unlink()  # rename does nothing where both names are one file already


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot, and need not
            raise
    finally:
        os.close(directory)


def _free(path: Path) -> str:
    try:
        return f"{shutil.disk_usage(path.parent).free:,} bytes"
    except OSError as error:
        return f"unknown ({error.strerror})"
