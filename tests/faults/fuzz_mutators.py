"""Ways to damage a file: blindly, byte by byte, or knowing its format, where a forged header does most harm."""

import io
import json
import random
import struct
import zipfile
from typing import Any

ODD_INTEGERS = (0, 1, 2, 7, 127, 128, 255, 256, 32767, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
ODD_JSON = (
    *(
        "null",
        "true",
        "-1",
        "0",
        "0.5",
        "1e999",
        "NaN",
        "-Infinity",
        "-0.0",
        "1e-400",
        "1E+2",
        "[]",
        "{}",
        "[[]]",
        '""',
    ),
    *(
        str(2**31),
        str(2**53 + 1),
        str(2**63),
        str(-(2**63) - 1),
        str(2**64),
        "1" + "0" * 400,
        "9" * 5000,
        "-" + "1" * 4300,
    ),
    *('"\\ud800"', '"\\udc80\\ud800"', '"\\u0000"', '"a\\u0000b"', '"../../outside"', '"/dev/zero"', '"%s%n"', '"nan"'),
    *('{"a": 1, "a": 2}', '{"": {"": {}}}', '{"__class__": "os.system"}', "[1, [2, [3, null]]]", "[65536, 65536]"),
    *("[" * 500 + "]" * 500, "[" * 100_000, '{"a":' * 20_000, "[" + "1," * 5000 + "1]", '"' + "x" * 100_000 + '"'),
)
ODD_DTYPES = (
    "F8_E4M3",
    "F8_E5M2",
    "BF16",
    "F16",
    "F64",
    "I8",
    "U8",
    "U64",
    "BOOL",
    "I128",
    "f32",
    "",
    "O",
    "F4",
    "C64",
)
ODD_SHAPES = ([], [0], [-1], [2**63], [2**32, 2**32], [2**64], [0, 2**62], [3, 3.0], [True], "x", None, [1] * 70, [[3]])
ODD_NPY_SHAPES = (
    *("()", "(0,)", "(-1,)", "(40,)", "(40, 3)", "(3, 40)", "(41, 3)", "(10**9,)", "(10**15, 3)", f"({2**62}, 4)"),
    *(
        "(40.0, 3)",
        "(True,)",
        "40",
        "None",
        "(1,)*99",
        "(" * 300,
        "[40]",
        "('40',)",
        f"({'9' * 5000},)",
        f"(0, {2**62})",
    ),
)
ODD_NPY_TYPES = (
    *(
        "'<f4'",
        "'>f8'",
        "'|b1'",
        "'|O'",
        "'<U5'",
        "'|S7'",
        "'<M8[ns]'",
        "'<c8'",
        "'<f2'",
        "'|V3'",
        "'<i8'",
        "'f4,O'",
        "3",
    ),
    *("[('a', '<f4')]", "('<f4', (3,))", "'<f99'", "''", "None", "'<U999999999'", "{'names': ['a'], 'formats': ['O']}"),
)


def damaged(rng: random.Random, content: bytes) -> bytes:
    """One to four blind changes: bytes flipped, cut, moved, doubled, inserted, zeroed; numbers replaced."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice(_BLIND)(rng, data)
    return bytes(data)


def _place(rng: random.Random, data: bytearray) -> int:
    # Half of the changes go near the beginning, where most formats keep their headers.
    end = len(data) if rng.random() < 0.5 else min(len(data), 2048)
    return rng.randrange(max(end, 1))


def _part(rng: random.Random, data: bytearray) -> slice:
    start = _place(rng, data)
    return slice(start, min(len(data), start + int(2 ** rng.uniform(0, 9))))


def _flip(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 2, 8, 32))):
        if data:
            data[_place(rng, data)] ^= 1 << rng.randrange(8)


def _overwrite(rng: random.Random, data: bytearray) -> None:
    part = _part(rng, data)
    data[part] = rng.randbytes(part.stop - part.start)


def _number(rng: random.Random, data: bytearray) -> None:
    width = rng.choice((1, 2, 4, 8))
    value = rng.choice(ODD_INTEGERS) + rng.choice((0, 0, 1, -1))
    place = _place(rng, data)
    place -= place % rng.choice((1, width))
    data[place : place + width] = (value % 256**width).to_bytes(width, "little")


def _truncate(rng: random.Random, data: bytearray) -> None:
    del data[_place(rng, data) :]


def _cut_out(rng: random.Random, data: bytearray) -> None:
    del data[_part(rng, data)]


def _double(rng: random.Random, data: bytearray) -> None:
    part = _part(rng, data)
    data[part.stop : part.stop] = data[part] * rng.choice((1, 1, 2, 50))


def _insert(rng: random.Random, data: bytearray) -> None:
    place = _place(rng, data)
    data[place:place] = rng.randbytes(int(2 ** rng.uniform(0, 6)))


def _splice(rng: random.Random, data: bytearray) -> None:
    source, target = _part(rng, data), _place(rng, data)
    data[target : target + source.stop - source.start] = data[source]


def _zero(rng: random.Random, data: bytearray) -> None:
    part = _part(rng, data)
    data[part] = rng.choice((b"\0", b"\xff")) * (part.stop - part.start)


_BLIND = (_flip, _overwrite, _number, _number, _truncate, _cut_out, _double, _insert, _splice, _zero)


def odd_json(rng: random.Random, content: bytes) -> bytes:
    """The JSON text with some values, names or whole branches replaced by odd ones."""
    tree: Any = json.loads(content)
    raw: list[str] = []
    for _ in range(rng.choice((1, 1, 2, 5))):
        parent, name = _somewhere(rng, tree)
        action = rng.randrange(6)
        if parent is None:
            tree = _mark(rng, raw)
        elif action == 0:
            del parent[name]
        elif action == 1 and isinstance(parent, dict):
            parent[rng.choice(("unknown", "", "\0", "step", "a.b", "x" * 1000))] = parent.pop(name)
        elif action == 2:
            other, key = _somewhere(rng, tree)
            parent[name] = other[key] if other else None
            if _is_cyclic(tree):
                parent[name] = None
        else:
            parent[name] = _mark(rng, raw)
    text = json.dumps(tree)
    for number, odd in enumerate(raw):
        text = text.replace(f'"@odd{number}@"', odd)
    return text.encode()


def _mark(rng: random.Random, raw: list[str]) -> str:
    raw.append(rng.choice(ODD_JSON))
    return f"@odd{len(raw) - 1}@"


def _somewhere(rng: random.Random, tree: Any) -> tuple[Any, Any]:
    """A random place in a tree of lists and dictionaries, as its parent and its name there."""
    parent: Any = None
    name: Any = None
    while isinstance(tree, list | dict) and tree and (parent is None or rng.random() < 0.8):
        parent, name = tree, rng.choice(list(tree)) if isinstance(tree, dict) else rng.randrange(len(tree))
        tree = parent[name]
    return parent, name


def _is_cyclic(tree: Any) -> bool:
    try:
        json.dumps(tree)
    except ValueError:
        return True
    return False


def odd_json_lines(rng: random.Random, content: bytes) -> bytes:
    """JSON lines of which some are odd."""
    lines = content.splitlines()
    for _ in range(rng.choice((1, 3))):
        number = rng.randrange(len(lines))
        change = rng.choice((odd_json, damaged, lambda rng, _: rng.choice(ODD_JSON).encode()))
        lines[number] = change(rng, content.splitlines()[number])
    return b"\n".join(lines)


def odd_safetensors(rng: random.Random, content: bytes) -> bytes:
    """A safetensors file whose header lies about types, shapes, places or its own length."""
    length = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    names = [name for name in header if name != "__metadata__"]
    name = rng.choice(names)
    entry = header[name]
    start, end = entry["data_offsets"]
    action = rng.randrange(8)
    if action == 0:
        entry["dtype"] = rng.choice(ODD_DTYPES)
    elif action == 1:
        entry["shape"] = rng.choice(ODD_SHAPES)
        if rng.random() < 0.5:  # a shape without elements fits a place without bytes
            entry["data_offsets"] = [start, start]
    elif action == 2:
        entry["data_offsets"] = rng.choice(
            ([0, 2**62], [end, start], [-1, 4], [start, end + 1], [0, len(data)], [0], {})
        )
    elif action == 3:
        header["__metadata__"] = rng.choice(({}, {"about": 3}, [], None, {"about": rng.choice(ODD_JSON)}))
    elif action == 4:
        header[rng.choice((*names, "", "x" * 5000, "\0", "__metadata__"))] = header.pop(name)
    elif action == 5 and rng.random() < 0.5:
        header[name + "again"] = dict(entry)
    text = odd_json(rng, json.dumps(header).encode()) if action >= 6 else json.dumps(header).encode()
    text = text.ljust(len(text) + rng.randrange(9))
    if action == 5:
        length = rng.choice((0, 1, len(text) - 1, len(text) + 1, len(text) + len(data), 10**8, 2**63, 2**64 - 1))
    else:
        length = len(text)
    if rng.random() < 0.2:
        data = rng.choice((b"", data[:-1], data + bytes(8), data * 2))
    return struct.pack("<Q", length) + text + data


def odd_npz(rng: random.Random, content: bytes) -> bytes:
    """An archive with a forged array header or a forged directory."""
    return rng.choice((_odd_npy_header, _odd_zip_directory))(rng, content)


def _odd_npy_header(rng: random.Random, content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    target = rng.choice(list(members))
    data = members[target][128:]
    fields = {"descr": "'<f4'", "fortran_order": "False", "shape": "(40, 3)"}
    fields[rng.choice(("descr", "shape"))] = rng.choice(ODD_NPY_TYPES + ODD_NPY_SHAPES)
    fields["shape"] = rng.choice((fields["shape"], *ODD_NPY_SHAPES))
    if rng.random() < 0.2:
        fields["fortran_order"] = rng.choice(("True", "3", "None", "'x'"))
    if rng.random() < 0.1:
        fields[rng.choice(("descr", "extra"))] = "__import__('os').abort()"
    text = ("{" + ", ".join(f"'{name}': {value}" for name, value in fields.items()) + "}").encode()
    text = text[: rng.choice((len(text), len(text), len(text) // 2))].ljust(rng.choice((117, 1000))) + b"\n"
    version = rng.choice((b"\1\0", b"\1\0", b"\2\0", b"\3\0", b"\xff\xff"))
    size = struct.pack("<H" if version == b"\1\0" else "<I", rng.choice((len(text), len(text), 0, 65535)))
    data = rng.choice((data, data, b"", bytes(480), data * 3))
    members[target] = b"\x93NUMPY" + version + size + text + data
    if rng.random() < 0.1:
        members[rng.choice(("phyb_format.npy", "terminated.npy", "x/../y.npy", "observations"))] = members[target]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return buffer.getvalue()


def _odd_zip_directory(rng: random.Random, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice((1, 2))):
        mark = rng.choice((b"PK\1\2", b"PK\3\4", b"PK\5\6"))
        places = [place for place in range(len(data)) if data.startswith(mark, place)]
        if places:
            field = rng.choice(places) + rng.choice((4, 6, 8, 10, 14, 16, 18, 20, 22, 24, 26, 28, 30, 34, 42, 46))
            width = rng.choice((1, 2, 4))
            data[field : field + width] = (rng.choice(ODD_INTEGERS) % 256**width).to_bytes(width, "little")
    return bytes(data)


_HDF5_MARKS = (
    b"TREE",
    b"SNOD",
    b"HEAP",
    b"GCOL",
    b"OHDR",
    b"FRHP",
    b"FHDB",
    b"BTHD",
    b"BTLF",
    b"FAHD",
    b"EAHD",
    b"BTIN",
)


def odd_hdf5(rng: random.Random, content: bytes) -> bytes:
    """Changes inside the structures of an HDF5 file, of the same length and with fitting checksums."""
    data = bytearray(content)
    marks = [place for place in range(len(data)) if data[place : place + 4] in _HDF5_MARKS]
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.choice(marks) + rng.randrange(4, 200) if rng.random() < 0.7 else rng.randrange(min(2048, len(data)))
        width = rng.choice((1, 1, 2, 4, 8))
        value = rng.choice((*ODD_INTEGERS, rng.choice(marks), rng.randrange(len(data)), rng.randrange(256)))
        if place + width <= len(data):
            data[place : place + width] = (value % 256**width).to_bytes(width, "little")
    for place in marks:
        if data[place : place + 4] == b"OHDR":
            renew_checksum(data, place)
    return bytes(data)


def renew_checksum(data: bytearray, place: int) -> None:
    """Of the object header that begins at a place; else most changes would go no further than the checksum."""
    flags = data[place + 5]
    sizes = place + 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
    width = 1 << (flags & 3)
    end = sizes + width + int.from_bytes(data[sizes : sizes + width], "little")
    if end + 4 <= len(data):
        data[end : end + 4] = struct.pack("<I", _lookup3(bytes(data[place:end])))


def _lookup3(key: bytes) -> int:
    """The checksum of HDF5's metadata: Jenkins' lookup3 hash."""

    def turn(value: int, bits: int) -> int:
        return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF

    a = b = c = 0xDEADBEEF + len(key) & 0xFFFFFFFF
    blocks = max(1, -(-len(key) // 12))
    words = struct.unpack(f"<{3 * blocks}I", key.ljust(12 * blocks, b"\0"))
    for block in range(blocks):
        a, b, c = ((x + y) & 0xFFFFFFFF for x, y in zip((a, b, c), words[3 * block : 3 * block + 3], strict=True))
        if block < blocks - 1:
            for bits in (4, 6, 8, 16, 19, 4):
                a, b, c = b, c, a  # in this order the six steps of a round are the same step
                c = (c - b & 0xFFFFFFFF) ^ turn(b, bits)
                b = b + a & 0xFFFFFFFF
    for bits in (14, 11, 25, 16, 4, 14, 24):
        c = (c ^ b) - turn(b, bits) & 0xFFFFFFFF
        a, b, c = b, c, a
    return b
