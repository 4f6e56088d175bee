"""Malformed inputs, many, to one model in one process, which must outlive them.

TFDML_MALFORMED sets how many; 10,000 take minutes. As a script it prints as JSON how many of each
kind were rejected, with which code, and how many were answered, with the largest memory that was
needed. A good input must give the same numbers after every hundred bad ones and after the last.
"""

import collections
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hostile import peak_kilobytes
from image_contents import claiming, encode
from PIL import Image
from sessions import RejectedError, Session

resource = pytest.importorskip("resource")
COUNT = int(os.environ.get("TFDML_MALFORMED", "700"))
MEMORY = 12 * 2**30  # bytes of addresses, of which the libraries and the threads take some
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")


def whole(rng, kind="PNG"):
    """The bytes of an image file."""
    pixels = rng.integers(0, 256, (*rng.integers(4, 64, 2), 3)).astype(np.uint8)
    return encode(Image.fromarray(pixels), kind)


def truncated(rng):
    """A file that lacks at least the last tenth of its bytes."""
    content = whole(rng, rng.choice(FORMATS))
    return content[: rng.integers(0, len(content) * 9 // 10)]


def random_bytes(rng):
    return rng.bytes(rng.integers(0, 2000))


def random_after_a_signature(rng):
    """Random bytes that start as the file of some format does."""
    return whole(rng, rng.choice(FORMATS))[: rng.integers(3, 30)] + random_bytes(rng)


def huge(rng):
    """A small file whose header states an enormous image."""
    return claiming(rng.choice(FORMATS).lower(), *rng.integers(15_000, 16_000, 2).tolist())


def without_partner(rng):
    images = [whole(rng) for _ in range(3)]
    return "similarity", {"image_bytes_a": images, "image_bytes_b": images[: rng.integers(3)]}


def of_bytes(kind):
    return lambda rng: ("serving_default", {"image_bytes": [kind(rng)]})


KINDS = {
    "truncated": of_bytes(truncated),
    "random bytes": of_bytes(random_bytes),
    "random after a signature": of_bytes(random_after_a_signature),
    "huge dimensions": of_bytes(huge),
    "without partner": without_partner,
}


def main(version, count, seed=0):
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    session, rng = Session(version), np.random.default_rng(int(seed))
    good = {"image_bytes": [whole(rng)]}
    expected = session.run("serving_default", good)["embedding"]
    found = collections.defaultdict(collections.Counter)
    for number in range(int(count)):
        kind = list(KINDS)[number % len(KINDS)]
        try:
            session.run(*KINDS[kind](rng))
            found[kind]["answered"] += 1
        except RejectedError as refusal:
            found[kind][refusal.code] += 1
        if number % 100 == 99 or number == int(count) - 1:
            np.testing.assert_array_equal(
                session.run("serving_default", good)["embedding"], expected
            )
    print(json.dumps({"kinds": found, "peak_megabytes": peak_kilobytes() // 1000}))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_each_is_an_error_and_the_process_goes_on(served):
    # A process of its own, whose memory is limited and measured.
    command = [sys.executable, __file__, str(served.folder / "2"), str(COUNT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr[-2000:]
    report = json.loads(run.stdout)
    assert set(report["kinds"]) == set(KINDS)
    assert sum(sum(codes.values()) for codes in report["kinds"].values()) == COUNT
    codes = {code for found in report["kinds"].values() for code in found}
    assert codes <= {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}
    assert report["peak_megabytes"] < 3000


if __name__ == "__main__":
    main(*sys.argv[1:])
