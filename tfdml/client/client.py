"""A client for TF Serving and the models that `export_model` writes."""

import contextlib
import functools
import itertools
import pathlib
import warnings
from typing import NamedTuple

import numpy as np
import urllib3.exceptions
import urllib3.util

from tfdml.checks import check, check_integer, check_one_of, check_positive
from tfdml.client.encoding import ImageError, batches_of, listed, read_images
from tfdml.client.rest_service import RestService
from tfdml.client.service import Model, ServingError, malformed, well_formed
from tfdml.quiet import progress
from tfdml.threads import in_order

SCHEMES = {"grpc": 8500, "grpcs": 8500, "http": 8501, "https": 443}  # and their default ports
_MARKED = "the server marks it as unreadable"


class _Task(NamedTuple):
    """What is asked of a model."""

    signature: str
    inputs: tuple  # their names
    output: str
    rank: int  # of the output
    whole: bool = False  # whether rows are {name: value} of all outputs


_EMBED = _Task("serving_default", ("image_bytes",), "embedding", 2)
_COMPARE = _Task("similarity", ("image_bytes_a", "image_bytes_b"), "similarity", 1)
_CLASSIFY = _Task("classify", ("image_bytes",), "distances", 2, whole=True)


class Client(contextlib.AbstractContextManager):
    """Embeds and compares images with a model on TF Serving.

    Imports neither TensorFlow nor Keras. gRPC needs the messages of tensorflow-serving-api
    (`pip install "tfdml[serving]"`), REST does not.

    Images are paths, bytes of encoded files, or uint8 arrays. Files are sent unchanged and arrays
    as PNG: the server reads and resizes them as in training. `predict("embed_images", ...)` takes
    floats in [0, 255] of the input size of the model.

    Without `version` and `label` the newest version answers, all batches of a call by the same. A
    client is thread-safe. Close it, or use it in a `with` block.

    Args:
        address: `grpc://host:8500` or `http://host:8501`; `grpcs://` and `https://` are encrypted.
        model: Name of the model on the server.
        version: Number of the version to use.
        label: Label of the version to use, such as `stable` or `canary`.
        batch_size: Most images of a request; > 0.
        in_flight: Most concurrent requests; > 0.
        timeout: Seconds that a request may take, with its connection and repetitions; > 0. By REST
            an answer that comes in pieces may take as long for each.
        retries: Most repetitions of a request after UNAVAILABLE (for REST: status 503, or a
            connection refused or dropped), after random pauses that end within `timeout`.
        headers: {name: text} to send, as gRPC metadata or HTTP headers.
        authority: File of CA certificates to verify the server with; the machine's own if None.
        certificate: File of the client's own certificate, if the server requires one.
        key: File of the private key of `certificate`.

    Raises:
        FileNotFoundError: If a certificate file does not exist.
        ImportError: If the address is of gRPC and tensorflow-serving-api is not installed.
        TypeError: If an option has the wrong type.
        ValueError: If the address is malformed, or an option is out of range.
    """

    def __init__(
        self,
        address,
        *,
        model,
        version=None,
        label=None,
        batch_size=32,
        in_flight=2,
        timeout=30.0,
        retries=4,
        headers=None,
        authority=None,
        certificate=None,
        key=None,
    ):
        check_integer(1, batch_size=batch_size, in_flight=in_flight)
        check_integer(0, retries=retries)
        check_positive(timeout=timeout)
        self._model = Model(model, version, label)
        both = {"version": version, "label": label}
        check(None in both.values(), "give a `version` or a `label`, not both", **both)
        if version is not None:
            check_integer(version=version)
        self._batch_size, self._in_flight = batch_size, in_flight
        files = {"authority": authority, "certificate": certificate, "key": key}
        sending = {"timeout": timeout, "headers": headers or {}, "retries": retries}
        self._service = connect(address, files, connections=in_flight, **sending)

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes the connection."""
        self._service.close()

    def embed(self, images, *, on_bad_image="error"):
        """Embeddings of images, in their order. Shows a progress bar after two seconds.

        A batch that the server rejects is sent again in halves until the unreadable images are
        found: its error may name an image of another client.

        Args:
            images: One image, an iterable of images, or an array (n, height, width, channels).
            on_bad_image: `error` raises for an unreadable image; `nan` gives it a row of NaN and
                warns with its name.

        Returns:
            (n, dim) float32.

        Raises:
            ImageError: For the first image that cannot be read.
            ServingError: If a request fails.
            TypeError: If an image has an unsupported type.
            ValueError: If an array does not have the shape of an image.
        """
        images, count = listed(images)
        found = (read_images((image,), (f"image {i}",)) for i, image in enumerate(images))
        rows = self._rows(_EMBED, found, count, on_bad_image)
        good = next((row for row in rows if row is not None), None)
        if good is None:
            return np.full((len(rows), self._dim()), np.nan, np.float32)
        dims = sorted({len(row) for row in rows if row is not None})
        if len(dims) > 1:
            raise malformed("embeddings of one length for all images", dims)
        return np.stack([np.full_like(good, np.nan) if row is None else row for row in rows])

    def similarity(self, a, b, *, on_bad_image="error"):
        """The similarity of `a[i]` to `b[i]`: learned, otherwise the cosine.

        Args:
            a: Images as for `embed`.
            b: The same number of images.
            on_bad_image: As for `embed`; NaN for a pair with an unreadable image.

        Returns:
            (n,) float32.

        Raises:
            ImageError: For the first pair with an unreadable image.
            ServingError: If a request fails.
            TypeError: If an image has an unsupported type.
            ValueError: If `a` and `b` differ in length.
        """
        a, b = (list(listed(images)[0]) for images in (a, b))
        check(len(a) == len(b), "`a` and `b` must have the same length", a=len(a), b=len(b))
        pairs = enumerate(zip(a, b, strict=True))
        found = (read_images(pair, (f"a[{i}]", f"b[{i}]")) for i, pair in pairs)
        rows = self._rows(_COMPARE, found, len(a), on_bad_image)
        return np.array([np.nan if row is None else row for row in rows], np.float32)

    def classify(self, images, *, on_bad_image="error"):
        """The classes of images, by a model exported with some, and whether it knows them.

        Args:
            images: As for `embed`.
            on_bad_image: As for `embed`; None for an unreadable image.

        Returns:
            For each image {"classes": texts, nearest first, "distances": floats}; if the model
            decides whether classes are known (`evaluate.py open_set --export`), also "class", a
            text, "known", a boolean, and the numbers "class_id", "score" and "probability".

        Raises:
            ImageError, ServingError, TypeError, ValueError: As for `embed`.
        """
        images, count = listed(images)
        found = (read_images((image,), (f"image {i}",)) for i, image in enumerate(images))
        rows = self._rows(_CLASSIFY, found, count, on_bad_image)
        return [row and {name: _plain(value) for name, value in row.items()} for row in rows]

    def predict(self, signature, inputs):
        """Calls any signature, such as `score_matrix`, in one request.

        Args:
            signature: Its name.
            inputs: {name: list of bytes, or array of numbers}.

        Returns:
            {name: array}; string outputs are object arrays of bytes. REST gives floats as float32
            and integers as int64.

        Raises:
            ServingError: If the request fails.
        """
        return self._service.predict(self._model, signature, inputs)

    def status(self):
        """The versions of the model on the server, newest first.

        Returns:
            List of `VersionStatus`: `version`, `state` (AVAILABLE if it answers), `error`.

        Raises:
            ServingError: If the request fails, or there is no such model.
        """
        return self._service.status(self._model)

    def metadata(self):
        """The signatures of the version that answers.

        Returns:
            `Metadata`: `version`, and `signatures` by their name, each with `inputs` and `outputs`.

        Raises:
            ServingError: If the request fails, or there is no such model.
        """
        return self._service.metadata(self._model)

    def _rows(self, task, images, count, on_bad_image):
        """A row for every image, by one version of the model; None for unreadable images."""
        check_one_of(("error", "nan"), on_bad_image=on_bad_image)
        batches = batches_of(images, self._batch_size)
        first = list(itertools.islice(batches, 2))
        model = self._pinned(self._model) if len(first) == 2 else self._model
        ask = functools.partial(self._ask, model, task, on_bad_image == "error")
        rows = []
        answers = in_order(ask, itertools.chain(first, batches), self._in_flight)
        with progress("Asking the server", total=count) as bar, contextlib.closing(answers):
            for answer in answers:
                for row in answer:
                    if isinstance(row, ImageError):
                        if on_bad_image == "error":
                            raise row
                        warnings.warn(str(row), stacklevel=3)
                    rows.append(None if isinstance(row, ImageError) else row)
                bar.update(len(answer))
        return rows

    def _pinned(self, model):
        """The model at the version that answers now: the next request may meet a newer one."""
        return model if model.version is not None else Model(model.name, self.metadata().version)

    def _ask(self, model, task, strict, batch):
        """A row, or an `ImageError`, for every image of a batch; raises the error if `strict`."""
        if isinstance(batch[0], ImageError):
            return batch
        columns = zip(*(images.contents for images in batch), strict=True)
        inputs = dict(zip(task.inputs, map(list, columns), strict=True))
        try:
            outputs = self._service.predict(model, task.signature, inputs)
        except ServingError as error:
            if error.code != "INVALID_ARGUMENT":
                raise
            if len(batch) == 1:
                self._signature(model, task.signature)  # raises if the signature is the problem
                rejected = batch[0].rejected(task.inputs, error.message)
                if strict:
                    raise rejected from error
                return [rejected]
            model = self._pinned(model)
            halves = (batch[: len(batch) // 2], batch[len(batch) // 2 :])
            return [row for half in halves for row in self._ask(model, task, strict, half)]
        rows, valid = _rows_in(outputs, task, len(batch))
        good = valid & np.isfinite(rows.reshape(len(batch), -1)).all(axis=1)
        if task.whole:
            rows = [{name: outputs[name][i] for name in outputs} for i in range(len(batch))]
        return [
            row if is_good else ImageError(images.name, _MARKED)
            for row, is_good, images in zip(rows, good, batch, strict=True)
        ]

    def _dim(self):
        """Length of the embeddings, as the server states it."""
        signature = self._signature(self._model, "serving_default")
        with well_formed("a signature that returns `embedding`, (n, dim)", signature):
            _, dim = signature.outputs["embedding"].shape
            return int(dim)

    def _signature(self, model, name):
        signatures = self._service.metadata(model).signatures
        if name not in signatures:
            names = ", ".join(sorted(signatures))
            message = f"the model has no signature {name}. It has: {names}"
            raise ServingError("INVALID_ARGUMENT", message)
        return signatures[name]


def _rows_in(outputs, task, count):
    """The (count, ...) float32 rows of a task, and `valid`, (count,) bool: true if not given."""
    rows, valid = outputs.get(task.output), outputs.get("valid", np.ones(count, bool))
    if (
        rows is None
        or rows.dtype.kind not in "fiu"
        or (rows.ndim, *rows.shape[:1]) != (task.rank, count)
        or (valid.shape, valid.dtype) != ((count,), bool)
        or (task.whole and any(values.shape[:1] != (count,) for values in outputs.values()))
    ):
        each = "a number" if task.rank == 1 else "a row of numbers"
        expected = f"`{task.output}`, {each} for each image, and `valid`, if any, of {count} images"
        raise malformed(expected, outputs)
    return rows.astype(np.float32, copy=False), valid


def _plain(value):
    """A value of an answer as Python has it: texts, numbers, or lists of them."""
    found = np.asarray(value)
    return (np.char.decode(found.astype(bytes)) if found.dtype.kind in "SO" else found).tolist()


def connect(address, files, *, connections, **settings):
    """A `GrpcService` or a `RestService` of `timeout`, `retries` and `headers`; sends nothing."""
    try:
        url = urllib3.util.parse_url(address)
    except urllib3.exceptions.LocationParseError:
        url = urllib3.util.Url()
    scheme = url.scheme or ""
    known = "grpc://host:8500 or http://host:8501, or grpcs:// or https:// over TLS"
    check(scheme in SCHEMES and url.host, f"`address` must be {known}", address=address)
    settings["tls"] = _tls(address, files, scheme in ("grpcs", "https"))
    target = f"{url.host}:{url.port or SCHEMES[scheme]}"
    if scheme.startswith("http"):
        address = f"{scheme}://{target}{url.path or ''}"
        return RestService(address, connections=connections, **settings)
    check(url.path in (None, "/"), "a gRPC address must not have a path", address=address)
    try:
        from tfdml.client.grpc_service import GrpcService
    except ImportError as error:
        needed = "gRPC needs grpcio, tensorflow-serving-api and TensorFlow"
        advice = 'pip install "tfdml[serving]", or use an http:// address'
        raise ImportError(f"{needed}: {advice} ({error})") from error
    return GrpcService(target, **settings)


def _tls(address, files, encrypted):
    """The checked files as {name: `pathlib.Path`}; None for an address without encryption."""
    usable = encrypted or not any(files.values())
    check(usable, "certificates require grpcs:// or https://", address=address)
    own = {name: files[name] for name in ("certificate", "key")}
    paired = all(own.values()) or not any(own.values())
    check(paired, "`certificate` and `key` must be given together", **own)
    paths = {name: file and pathlib.Path(file) for name, file in files.items()}
    for file in filter(None, paths.values()):
        if not file.is_file():
            raise FileNotFoundError(f"there is no file {file}")
    return paths if encrypted else None
