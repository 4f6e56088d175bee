"""The client over sockets, against the protocol test server."""

import contextlib
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from relay import Relay

from pipelines import Reader
from tfdml.client import Client, ImageError, ServingError, service
from tfdml.client import client as module

NAME = "embedder"
NOT_THERE = "grpc://127.0.0.1:1", "http://127.0.0.1:1"  # a port where nothing listens


@pytest.fixture
def client(address):
    with Client(address, model=NAME, batch_size=2) as client:
        yield client


@pytest.fixture
def pauses(monkeypatch):
    """The seconds that clients would have waited between attempts."""
    found = []
    monkeypatch.setattr(service, "sleep", found.append)
    return found


def test_embeds_files_and_bytes_in_their_order(client, served, contents, files):
    expected = served.embed(contents)
    assert np.ptp(expected, axis=0).min() > 1e-3  # or their order could not be known
    mixed = [files[0], contents[1], str(files[2]), *contents[3:]]
    for given in (files, map(str, files), contents, mixed):
        np.testing.assert_allclose(client.embed(given), expected, atol=1e-5)
    np.testing.assert_allclose(client.embed(files[3]), expected[3:4], atol=1e-5)
    assert client.embed(contents).dtype == np.float32


def test_embeds_arrays(client, served, rng):
    pixels = rng.integers(0, 256, (5, 16, 12, 3)).astype(np.uint8)
    expected = served.models[2].embed(pixels.astype("float32"))
    assert np.ptp(expected, axis=0).min() > 1e-3
    np.testing.assert_allclose(client.embed(pixels), expected, atol=1e-5)
    np.testing.assert_allclose(client.embed(pixels[1]), expected[1:2], atol=1e-5)
    grey = rng.integers(0, 256, (20, 9)).astype(np.uint8)
    expected = client.embed(np.repeat(grey[:, :, None], 3, axis=2))
    found = client.embed([grey, grey[:, :, None]])
    np.testing.assert_allclose(found, expected.repeat(2, 0), atol=1e-6)


def test_no_images_have_no_embeddings(client):
    assert client.embed([]).shape == (0, 8)
    assert client.similarity([], []).shape == (0,)


def test_classes_of_images_and_whether_they_are_known(client, served, contents, address):
    expected = served.decision(served.embed(contents))
    found = client.classify(contents)
    assert [row["known"] for row in found] == expected["known"].tolist()
    assert [row["class"] for row in found] == ["abcdefgh"[i] for i in expected["class_id"]]
    for name in ("probability", "score"):
        values = [row[name] for row in found]
        np.testing.assert_allclose(values, expected[name], atol=1e-4, rtol=1e-4)
    assert set(found[0]["classes"]) < set("abcdefgh")
    assert found[0]["distances"] == sorted(found[0]["distances"])
    missing = [contents[0], b"none"]
    with pytest.warns(UserWarning, match="image 1"):
        assert client.classify(missing, on_bad_image="nan")[1] is None
    without = pytest.raises(ServingError, match="no signature classify")
    with Client(address, model=NAME, version=1) as earlier, without:
        earlier.classify(contents[0])


@pytest.mark.parametrize("version", [1, 2])
def test_the_similarity_of_pairs_is_the_cosine_or_learned(
    version, address, served, contents, files
):
    expected = served.similarity(contents, contents[::-1], version)
    assert np.ptp(expected) > 1e-4
    with Client(address, model=NAME, batch_size=2, version=version) as client:
        np.testing.assert_allclose(client.similarity(files, contents[::-1]), expected, atol=1e-5)


def test_states_versions_and_signatures(client, address):
    assert [(each.version, each.state) for each in client.status()] == [
        (2, "AVAILABLE"),
        (1, "AVAILABLE"),
    ]
    version, signatures = client.metadata()
    assert version == 2
    assert signatures["embed_images"].inputs == {"images": ("float32", (None, 16, 12, 3))}
    assert signatures["serving_default"] == (
        {"image_bytes": ("string", (None,))},
        {"embedding": ("float32", (None, 8))},
    )
    plain = {"serving_default", "embed_images", "read_images", "similarity"}
    learned = {*plain, "score_pairs", "score_matrix", "classify", "decide"}
    with Client(address, model=NAME, version=1) as earlier:
        for names, expected in ((earlier.metadata().signatures, plain), (signatures, learned)):
            assert {name for name in names if not name.startswith("__")} == expected


def test_any_signature_can_be_asked(client, served, contents, rng):
    model, a = served.models[2], rng.normal(size=(2, 8)).astype("float32")
    b = rng.normal(size=(3, 8)).astype("float32")
    images = rng.uniform(0, 255, (3, 16, 12, 3)).astype("float32")
    matrix = model.similarity(np.repeat(a, 3, axis=0), np.tile(b, (2, 1))).reshape(2, 3)
    rows = {"embeddings_a": a, "embeddings_b": b}
    read = np.stack([Reader((16, 12, 3))(content) for content in contents])
    for name, inputs, output, expected in (
        ("embed_images", {"images": images}, "embedding", model.embed(images)),
        ("read_images", {"image_bytes": contents}, "images", read),
        ("score_pairs", {**rows, "embeddings_b": b[:2]}, "similarity", model.similarity(a, b[:2])),
        ("score_matrix", rows, "similarity", matrix),
        ("decide", {"embeddings": a}, "probability", served.decision(a)["probability"]),
    ):
        found = client.predict(name, inputs)[output]
        assert np.ptp(expected) > 0, name
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5, err_msg=name)
        assert found.dtype == np.float32, name


@pytest.mark.parametrize(
    ("chosen", "version"),
    [({}, 2), ({"version": 1}, 1), ({"label": "stable"}, 1), ({"label": "canary"}, 2)],
    ids=str,
)
def test_the_version_that_is_asked_answers(chosen, version, address, served, contents):
    with Client(address, model=NAME, **chosen, batch_size=3) as client:
        assert client.metadata().version == version
        assert client.status()[0].version == version
        for rows in (slice(None), slice(1)):
            expected = served.embed(contents[rows], version)
            np.testing.assert_allclose(client.embed(contents[rows]), expected, atol=1e-5)


def test_all_batches_of_a_call_go_to_one_version(monkeypatch):
    """A single batch goes to the newest; only its halves, once it is rejected, to a named one."""
    asked = []

    def predict(model, signature, inputs):
        asked.append(model.version)
        if b"broken" in inputs["image_bytes"]:
            raise ServingError("INVALID_ARGUMENT", "a broken image")
        return {"embedding": np.ones((len(inputs["image_bytes"]), 3), np.float32)}

    with Client("grpc://127.0.0.1:1", model=NAME, batch_size=3) as client:
        metadata = service.Metadata(7, {"serving_default": None})
        monkeypatch.setattr(client._service, "predict", predict)
        monkeypatch.setattr(client._service, "metadata", lambda model: metadata)
        client.embed([b"a"] * 7)
        client.embed([b"a"] * 3)
        assert asked == [7, 7, 7, None]
        with pytest.warns(UserWarning, match="broken"):
            rows = client.embed([b"a", b"broken", b"c"], on_bad_image="nan")
    assert np.isnan(rows).all(axis=1).tolist() == [False, True, False]
    assert asked[4:] == [None, 7, 7, 7, 7]  # the batch, and its halves


def test_a_bad_image_is_named_wherever_it_stands(client, files):
    for number, content in ((0, b""), (3, b"no image"), (4, files[4].read_bytes()[:60])):
        before = files[number].read_bytes()
        files[number].write_bytes(content)
        with pytest.raises(ImageError, match=f"{number}.img cannot be read: the server") as e:
            client.embed(files)
        assert e.value.image == str(files[number])
        assert "{{" not in str(e.value)  # names of nodes of the graph
        files[number].write_bytes(before)
    missing = files[0].with_name("x.png")
    with pytest.raises(ImageError, match=r"x\.png cannot be read: No such file or directory"):
        client.embed([*files, missing])  # before its batch is sent


def test_bad_images_get_rows_of_nan_if_asked(client, served, contents, tmp_path):
    given = [contents[0], b"no image", contents[2], tmp_path / "missing.png", contents[4]]
    with pytest.warns(UserWarning, match="cannot be read") as warned:
        found = client.embed(given, on_bad_image="nan")
    assert [str(each.message).partition(" cannot be read: ")[0] for each in warned] == [
        "image 1",
        str(tmp_path / "missing.png"),
    ]
    np.testing.assert_allclose(found[::2], served.embed(contents[::2]), atol=1e-5)
    assert np.isnan(found[[1, 3]]).all()
    with pytest.warns(UserWarning, match="image 0 cannot be read"):
        assert np.isnan(client.embed(b"no image", on_bad_image="nan")).tolist() == [[True] * 8]


def test_a_pair_with_a_bad_image_is_named(client, contents, files):
    files[3].write_bytes(b"no image")
    with pytest.raises(ImageError, match=r"3\.img( and b\[3\])? cannot be read: the server"):
        client.similarity(files, contents)
    with pytest.warns(UserWarning, match=r"3\.img"):
        found = client.similarity(files, contents, on_bad_image="nan")
    assert np.isnan(found).tolist() == [False, False, False, True, False]


def test_images_that_cannot_be_compared(client, contents):
    with pytest.raises(ValueError, match="must have the same length"):
        client.similarity(contents[:1], contents[:2])
    with pytest.raises(TypeError, match=r"a\[0\] must be of uint8"):
        client.similarity(np.zeros((1, 16, 12, 3)), contents[:1])


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"model": "nobody"}, "NOT_FOUND"),
        ({"model": NAME, "version": 9}, "NOT_FOUND"),
        ({"model": NAME, "label": "nightly"}, "INVALID_ARGUMENT|NOT_FOUND|FAILED_PRECONDITION"),
    ],
)
def test_models_and_versions_that_are_not_there(options, code, address, contents):
    with Client(address, **options) as client:
        for call in (lambda: client.embed(contents), lambda: client.embed(contents[0])):
            with pytest.raises(ServingError, match=code):
                call()


def test_a_signature_that_is_not_there_is_not_the_fault_of_an_image(client, contents, monkeypatch):
    with pytest.raises(ServingError, match="INVALID_ARGUMENT"):
        client.predict("nothing", {"image_bytes": contents})
    monkeypatch.setattr(module, "_EMBED", module._EMBED._replace(signature="neighbours"))
    with pytest.raises(ServingError, match=r"no signature neighbours.*embed_images"):
        client.embed(contents, on_bad_image="nan")


def attempts(failures, retries, code="UNAVAILABLE"):
    """Number of attempts of a request that fails so many times."""
    made = []

    def send(until):
        made.append(until)
        if len(made) <= failures:
            raise ServingError(code, "not now")
        return b""

    with contextlib.suppress(ServingError):
        service.Service(1000.0, retries)._ask(send, bytes, "bytes")
    return len(made)


def test_pauses_double_up_to_ten_seconds_and_differ(pauses):
    assert attempts(8, retries=8) == 9
    longest = [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    shares = [pause / most for pause, most in zip(pauses, longest, strict=True)]
    assert all(0.5 <= share < 1 for share in shares)
    assert len(set(shares)) == 8


def test_only_what_is_unavailable_is_asked_again(pauses):
    assert attempts(3, retries=2) == 3
    for code in ("DEADLINE_EXCEEDED", "INTERNAL", "INVALID_ARGUMENT"):
        assert attempts(3, 2, code) == 1


@pytest.mark.parametrize("address", NOT_THERE)
def test_a_server_that_is_not_there(address, pauses):
    with (
        Client(address, model=NAME, retries=2) as client,
        pytest.raises(ServingError, match=r"UNAVAILABLE: .*127\.0\.0\.1") as error,
    ):
        client.status()
    assert error.value.code == "UNAVAILABLE"
    assert len(pauses) == 2


def test_waits_for_a_slow_connection(server, served, contents):
    with (
        Relay(server.grpc) as relay,
        Client(f"grpc://127.0.0.1:{relay.port}", model=NAME, retries=0) as client,
    ):
        relay.delay = 0.5
        np.testing.assert_allclose(client.embed(contents), served.embed(contents), atol=1e-5)
    assert relay.connections == 1


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_asks_again_when_the_connection_drops(scheme, server, served, contents, monkeypatch):
    pauses = []  # which gRPC needs: it waits 100 ms between its own attempts
    monkeypatch.setattr(service, "sleep", lambda pause: (pauses.append(pause), time.sleep(pause)))
    with (
        Relay(server.grpc if scheme == "grpc" else server.rest) as relay,
        Client(f"{scheme}://127.0.0.1:{relay.port}", model=NAME) as client,
    ):
        relay.drops = 2
        found = client.embed(contents)
    np.testing.assert_allclose(found, served.embed(contents), atol=1e-5)
    assert relay.drops == 0
    assert relay.connections == 3
    assert len(pauses) >= 2


def test_serves_several_threads(client, served, contents):
    expected = served.embed(contents)
    with ThreadPoolExecutor(4) as threads:
        for i, found in enumerate(threads.map(lambda i: client.embed(contents[i:]), range(4))):
            np.testing.assert_allclose(found, expected[i:], atol=1e-5)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Folder with a certificate of 127.0.0.1 that vouches for itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("certificates")
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    files = ["-keyout", folder / "key.pem", "-out", folder / "certificate.pem"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("scheme", ["grpcs", "https"])
def test_speaks_tls_and_shows_its_certificate(scheme, server, certificates, pauses):
    port = server.grpc if scheme == "grpcs" else server.rest
    certificate, key = certificates / "certificate.pem", certificates / "key.pem"
    with Relay(port, (certificate, key), authority=certificate) as relay:
        address = f"{scheme}://127.0.0.1:{relay.port}"
        own = {"certificate": certificate, "key": key}
        with Client(address, model=NAME, authority=certificate, **own) as client:
            assert client.status()[0].version == 2
        for wrong in ({"authority": certificate}, own):  # nothing to show; nobody to vouch
            with (
                Client(address, model=NAME, retries=1, timeout=5, **wrong) as client,
                pytest.raises(ServingError, match=r"UNAVAILABLE|UNAUTHENTICATED"),
            ):
                client.status()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"batch_size": 0}, ValueError, "`batch_size` .*Received: batch_size=0"),
        ({"in_flight": 1.5}, TypeError, "`in_flight` must be an integer"),
        ({"timeout": 0}, ValueError, "`timeout` must be > 0"),
        ({"retries": -1}, ValueError, "`retries` .*Received: retries=-1"),
        ({"version": 1, "label": "stable"}, ValueError, "`version` or a `label`"),
        ({"address": "127.0.0.1:8500"}, ValueError, "must be grpc://host:8500"),
        ({"address": "ftp://host"}, ValueError, "Received: address='ftp://host'"),
        ({"address": "grpc://"}, ValueError, "must be grpc://host:8500"),
        ({"address": "grpc://host:x"}, ValueError, "must be grpc://host:8500"),
        ({"address": "grpc://host/path"}, ValueError, "a gRPC address must not have a path"),
        ({"authority": "x"}, ValueError, "require grpcs:// or https://"),
        ({"address": "grpcs://h", "authority": "x.pem"}, FileNotFoundError, "no file x.pem"),
        ({"address": "https://h", "key": "x.pem"}, ValueError, "must be given together"),
    ],
)
def test_options_that_cannot_be(options, error, said):
    with pytest.raises(error, match=said):
        Client(**{"address": NOT_THERE[0], "model": NAME, **options})


@pytest.mark.parametrize(
    ("images", "error", "said"),
    [
        (3, TypeError, r"`images` .*Received: images=3"),
        ([3], TypeError, "image 0 must be one of paths, bytes"),
        (np.zeros((1, 1, 2, 2, 3)), ValueError, r"an array must be .*shape=\(1, 1, 2, 2, 3\)"),
        (np.zeros((16, 12, 3), "int64"), TypeError, "must be of uint8.*dtype='int64'"),
        (np.zeros((16, 12, 4), "uint8"), ValueError, r"with 1 or 3 channels.*\(16, 12, 4\)"),
        ([np.zeros((1, 2, 3, 3), "uint8")], ValueError, r"image 0 must be .*\(1, 2, 3, 3\)"),
        (np.zeros((0, 12, 3), "uint8"), ValueError, r"image 0 must be .*\(0, 12, 3\)"),
    ],
)
def test_what_is_no_image_is_rejected(images, error, said):
    with Client(NOT_THERE[0], model=NAME) as client, pytest.raises(error, match=said):
        client.embed(images)
