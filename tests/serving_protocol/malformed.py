"""Malformed inputs, many, to one model in one process, which must outlive them.

    python tests/serving_protocol/malformed.py VERSION COUNT [SEED]

Runs the signatures of a SavedModel by the C API on inputs that are wrong in some way, in a process
that may take a bounded memory, and prints as JSON how many of each kind were rejected, with which
code, and how many were answered, with the largest memory that was needed. A good input must give
the same numbers after every hundred bad ones and after the last.
"""

import collections
import io
import json
import pathlib
import resource
import struct
import sys
import time
import zlib

import numpy as np
import PIL.Image
from c_api import RejectedError, Session

MEMORY = 8 * 2**30  # bytes of addresses, of which the libraries and the threads take some
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")


def whole(rng, kind):
    """The bytes of an image file."""
    buffer = io.BytesIO()
    pixels = rng.integers(0, 256, (*rng.integers(4, 64, 2), 3)).astype(np.uint8)
    PIL.Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def truncated(rng):
    """A file that lacks at least the last tenth of its bytes."""
    content = whole(rng, rng.choice(FORMATS))
    return content[: rng.integers(0, len(content) * 9 // 10)]


def random_bytes(rng):
    return rng.bytes(rng.integers(0, 2000))


def random_after_a_signature(rng):
    """Random bytes that start as the file of some format does."""
    start = whole(rng, rng.choice(FORMATS))[: rng.integers(3, 30)]
    return start + rng.bytes(rng.integers(0, 2000))


def huge(rng):
    """A small file whose header states an enormous image."""
    sides = rng.choice([8_000, 24_000, 60_000, 65_535], 2).tolist()
    file_of = rng.choice(
        [huge_png, huge_gif, huge_gif_of_small_screen, huge_bmp, huge_jpeg, huge_webp]
    )
    return file_of(*sides)


def huge_png(width, height):
    def chunk(name, content):
        checksum = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(bytes(1000))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


def huge_gif(width, height):
    screen = struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    frame = b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02\x44\x01\x00;"
    return b"GIF89a" + screen + frame


def huge_gif_of_small_screen(width, height):
    content = bytearray(huge_gif(width, height))
    content[6:10] = struct.pack("<HH", 1, 1)
    return bytes(content)


def huge_bmp(width, height):
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + 100, 0, 0, 54) + header + bytes(100)


def huge_jpeg(width, height):
    content = bytearray(whole(np.random.default_rng(0), "JPEG"))
    frame = content.index(b"\xff\xc0")
    content[frame + 5 : frame + 9] = struct.pack(">HH", min(height, 65_500), min(width, 65_500))
    return bytes(content)


def huge_webp(width, height):
    sides = struct.pack("<HH", min(width, 16_383), min(height, 16_383))
    frame = b"\x30\x01\x00\x9d\x01\x2a" + sides + bytes(200)
    chunk = b"VP8 " + struct.pack("<I", len(frame)) + frame
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def among_good(rng):
    """A bad image in a batch of good ones."""
    batch = [whole(rng, "PNG") for _ in range(3)]
    bad = rng.choice([truncated, random_bytes, random_after_a_signature])
    batch[rng.integers(3)] = bad(rng)
    return "serving_default", {"image_bytes": batch}


def wrong_type(rng):
    """An array of numbers for images, bytes for numbers, or numbers of another type."""
    dtype = rng.choice(["float32", "float64", "int32", "int64", "uint8"])
    array = np.zeros(rng.integers(1, 4, rng.integers(1, 5)), dtype)
    name = "image_bytes" if rng.random() < 0.5 else "images"
    if name == "images" and dtype == "float32":
        return "embed_images", {name: [rng.bytes(10)]}
    return {"image_bytes": "serving_default", "images": "embed_images"}[name], {name: array}


def wrong_inputs(rng):
    """Inputs that miss, or of which one has other rows than the other."""
    signature = rng.choice(["serving_default", "embed_images", "similarity"])
    images = [whole(rng, "PNG") for _ in range(3)]
    if signature == "similarity" and rng.random() < 0.5:
        return signature, {"image_bytes_a": images, "image_bytes_b": images[: rng.integers(3)]}
    return signature, {}


def of_bytes(kind):
    return lambda rng: ("serving_default", {"image_bytes": [kind(rng)]})


KINDS = {
    "truncated": of_bytes(truncated),
    "random bytes": of_bytes(random_bytes),
    "random after a signature": of_bytes(random_after_a_signature),
    "huge dimensions": of_bytes(huge),
    "bad among good": among_good,
    "wrong type": wrong_type,
    "wrong inputs": wrong_inputs,
}


def peak_kilobytes():
    """The largest memory of this process; `getrusage` counts that of its parent too."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def main(version, count, seed=0):
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    session, rng = Session(version), np.random.default_rng(int(seed))
    good = {"image_bytes": [whole(rng, "PNG")]}
    expected = session.run("serving_default", good)["embedding"]
    found, slowest, began = collections.defaultdict(collections.Counter), 0.0, time.perf_counter()
    answered = []
    for number in range(int(count)):
        kind = list(KINDS)[number % len(KINDS)]
        signature, inputs = KINDS[kind](rng)
        started = time.perf_counter()
        try:
            session.run(signature, inputs)
            found[kind]["answered"] += 1
            answered.append(repr(inputs)[:120])
        except RejectedError as refusal:
            found[kind][refusal.code] += 1
        slowest = max(slowest, time.perf_counter() - started)
        if number % 100 == 99 or number == int(count) - 1:
            np.testing.assert_array_equal(
                session.run("serving_default", good)["embedding"], expected
            )
    report = {
        "kinds": found,
        "answered": answered[:20],
        "seconds": round(time.perf_counter() - began, 1),
        "slowest_seconds": round(slowest, 2),
        "peak_megabytes": peak_kilobytes() // 1000,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
