"""Files that TensorBoard reads, of numbers alone: its records and messages, by TensorFlow's record_writer and event.proto.

Written here, in place of the package `tensorboard` (grpcio, protobuf, werkzeug, 20 MB and a second to import): a format of three
messages that has not changed since 2015, for login nodes that have neither it nor torch.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping

VERSION = b"brain.Event:2"
POLYNOMIAL = 0x82F63B78  # Castagnoli's, reflected


def _table() -> tuple[int, ...]:
    values = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ POLYNOMIAL * (value & 1)
        values.append(value)
    return tuple(values)


TABLE = _table()


def crc32c(content: bytes) -> int:
    """Return the checksum CRC-32C (RFC 3720, B.4)."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(content: bytes) -> bytes:
    """Return the checksum as records have it: rotated by 15 bits, plus a constant."""
    crc = crc32c(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(content: bytes) -> bytes:
    """Return a record: length, its checksum, content, its checksum."""
    length = struct.pack("<Q", len(content))
    return length + masked(length) + content + masked(content)


def varint(value: int) -> bytes:
    """Return a number >= 0 in protocol buffers' form: 7 bits a byte, lowest first."""
    content = bytearray()
    while value > 0x7F:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*content, value])


def part(number: int, content: bytes) -> bytes:
    """Return a field of a message that has a length: a string or a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def event(seconds: float, step: int, numbers: Mapping[str, float]) -> bytes:
    """Return an Event {wall_time = 1, step = 2, summary = 5 {value = 1 {tag = 1, simple_value = 2}}}; seconds: since 1970."""
    values = [
        part(1, part(1, tag.encode()) + b"\x15" + struct.pack("<f", number))
        for tag, number in numbers.items()
    ]
    return b"\x09" + struct.pack("<d", seconds) + b"\x10" + varint(step) + part(5, b"".join(values))


def content(rows: Iterable[tuple[float, int, Mapping[str, float]]]) -> Iterator[bytes]:
    """Yield the records of a file from (seconds since 1970, step, numbers by tag)."""
    first = True
    for seconds, step, numbers in rows:
        if first:
            yield record(b"\x09" + struct.pack("<d", seconds) + part(3, VERSION))
            first = False
        yield record(event(seconds, step, numbers))
