"""Bad files out of a good one: cut, flipped, moved, spliced, or wrong in what they say behind a valid checksum."""

import copy
import json
import random
import zlib
from typing import Any

VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**70, 10**4000, -0.0, 1e308, 1e-320, "", "x", "x" * 5000, "NaN",
    "\x00", "\x1b[2J", "../../etc/passwd", "/dev/zero", "\ud800", "é" * 300, [], [[]], {}, {"": {}}, [None] * 50,
    [[[[[[[[]]]]]]]],
]  # fmt: skip
NUMBERS = [b"NaN", b"Infinity", b"1e999", b"-1", b"99999999999999999999"]
TEXTS = [*NUMBERS, b"\\ud800", b'"', b"{", b"[" * 3000, b"\xff", b"\0"]
SIZES = [0, 1, 7, 255, 2**16, 2**31 - 1, 2**32, 2**48, 2**63 - 1, 2**64 - 1]  # the last ones promise exabytes


def mutate(content: bytes, others: list[bytes], draws: random.Random) -> bytes:
    """One bad file; now and then the good one."""
    ways = [_cut, _flip, _write, _move, _splice, _insert, _size, _longer]
    if _header(content) is not None:
        ways += [_tensors] * 6
    elif content[:1] in b"{[":
        ways += [_structure] * 6
    for _ in range(draws.choice([1, 1, 1, 2, 4])):
        content = draws.choice(ways)(content, others, draws)
    return content


def _cut(content: bytes, _: list[bytes], draws: random.Random) -> bytes:
    return content[: draws.randrange(len(content) + 1)]


def _flip(content: bytes, _: list[bytes], draws: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draws.choice([1, 1, 3, 20]) if changed else 0):
        changed[draws.randrange(len(changed))] ^= 1 << draws.randrange(8)
    return bytes(changed)


def _write(content: bytes, _: list[bytes], draws: random.Random) -> bytes:
    at, text = draws.randrange(len(content) + 1), draws.choice(TEXTS)
    return content[:at] + text + content[at + len(text) :]


def _insert(content: bytes, _: list[bytes], draws: random.Random) -> bytes:
    at = draws.randrange(len(content) + 1)
    return content[:at] + draws.choice([*TEXTS, draws.randbytes(draws.randrange(1, 40))]) + content[at:]


def _move(content: bytes, _: list[bytes], draws: random.Random) -> bytes:
    first, second, third = sorted(draws.randrange(len(content) + 1) for _ in range(3))
    return content[:first] + content[second:third] + content[first:second] + content[third:]


def _splice(content: bytes, others: list[bytes], draws: random.Random) -> bytes:
    other = draws.choice(others)
    return content[: draws.randrange(len(content) + 1)] + other[draws.randrange(len(other) + 1) :]


def _size(content: bytes, _: list[bytes], draws: random.Random) -> bytes:
    """A declared length that has nothing to do with the file."""
    size, order = draws.choice(SIZES), draws.choice(["little", "big"])
    number = size.to_bytes(8, order)[: draws.choice([4, 8])]  # pyright: ignore[reportArgumentType]
    at = draws.choice([0, draws.randrange(len(content) + 1)])
    return content[:at] + number + content[at + len(number) :]


def _longer(content: bytes, others: list[bytes], draws: random.Random) -> bytes:
    return content + draws.choice([b"\0", b"\n", content, draws.choice(others)])


def _structure(content: bytes, _: list[bytes], draws: random.Random) -> bytes:
    """JSON that is whole and says something else."""
    try:
        value = json.loads(content.decode().splitlines()[0] if content.count(b"\n{") else content)
    except (ValueError, RecursionError, IndexError):
        return content
    return _dumps(_change(value, draws))


def _dumps(value: Any) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":")).encode()
    except (ValueError, RecursionError):  # integers of 4000 digits
        return b"1" * 5000


def _change(value: Any, draws: random.Random) -> Any:
    """The value with one of its places changed, taken away, doubled or renamed."""
    value = copy.deepcopy(value)
    places = list(_places(value))
    if not places:
        return draws.choice(VALUES)
    holder, key = draws.choice(places)
    way = draws.randrange(6)
    if way == 0 and isinstance(holder, dict):
        del holder[key]
    elif way == 1 and isinstance(holder, dict):
        holder[draws.choice(["", "a/b/c", "x" * 2000, "\x00", "\u202e", *map(str, holder)])] = holder.pop(key)
    elif way == 2 and isinstance(holder, list):
        holder.insert(0, holder[key])
    elif way == 3:
        other, elsewhere = draws.choice(places)
        holder[key], other[elsewhere] = other[elsewhere], holder[key]
        if _is_circular(value):
            return draws.choice(VALUES)
    else:
        holder[key] = draws.choice(VALUES)
    return value


def _is_circular(value: Any) -> bool:
    try:
        json.dumps(value)
    except ValueError as error:
        return "Circular" in str(error)
    return False


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)


def _header(content: bytes) -> tuple[dict, bytes] | None:
    size = int.from_bytes(content[:8], "little")
    if size > len(content) - 8:
        return None
    try:
        header = json.loads(content[8 : 8 + size])
    except (ValueError, RecursionError):
        return None
    return (header, content[8 + size :]) if isinstance(header, dict) else None


def _tensors(content: bytes, others: list[bytes], draws: random.Random) -> bytes:
    """A safetensors file with another header or other numbers, and the checksum that belongs to it."""
    found = _header(content)
    if found is None:
        return content
    header, data = found
    way = draws.randrange(4)
    if way == 0:
        header = _change(header, draws)
    elif way == 1 and isinstance(header.get("__metadata__"), dict):
        strings = header["__metadata__"]
        name = draws.choice(list(strings) or [""])
        inner = _structure(str(strings.get(name)).encode(), others, draws)
        strings[name] = inner.decode(errors="replace")
    elif way == 2:
        data = bytes(_numbers(data, draws))
    else:
        header, data = _change(header, draws), _flip(data, others, draws)
    return sealed(header, data)


def _numbers(data: bytes, draws: random.Random) -> bytearray:
    """NaN, infinities, negative and denormal numbers, or one number everywhere."""
    changed = bytearray(data)
    for _ in range(draws.choice([1, 1, len(data) // 4]) if len(data) >= 4 else 0):
        at = 4 * draws.randrange(len(data) // 4)
        number = draws.choice(["0000c07f", "0000807f", "000080ff", "000080bf", "01000000", "00000080", "ffff7f7f"])
        changed[at : at + 4] = bytes.fromhex(number)
    return changed


def sealed(header: Any, data: bytes) -> bytes:
    """A safetensors file with this header, these bytes and a checksum that holds, where the header has one."""
    if isinstance(header, dict) and isinstance(header.get("__metadata__"), dict):
        header["__metadata__"]["checksum"] = "00000000"
    text = _dumps(header)
    raw = len(text).to_bytes(8, "little") + text
    checksum = f"{zlib.crc32(raw + data):08x}".encode()
    return raw.replace(b'"checksum":"00000000"', b'"checksum":"' + checksum + b'"', 1) + data
