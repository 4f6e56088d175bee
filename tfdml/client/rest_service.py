"""Requests over REST."""

import base64
import contextlib
import json
import urllib.request
from time import monotonic

import numpy as np
import urllib3
import urllib3.util

from tfdml.checks import check_type
from tfdml.client.service import Service, ServingError, metadata_in, versions_in

_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    412: "FAILED_PRECONDITION",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class RestService(Service):
    """The REST interface of a server, at an address such as `http://host:8501/path`."""

    def __init__(self, address, *, timeout, headers, tls, connections, retries):
        super().__init__(timeout, retries)
        self._address, self._only_outputs = address.rstrip("/"), {}
        names = {"ca_certs": "authority", "cert_file": "certificate", "key_file": "key"}
        files = {name: tls[file] and str(tls[file]) for name, file in names.items()} if tls else {}
        self._session, self._headers = _session(address, maxsize=connections, **files), headers

    def close(self):
        self._session.clear()

    def predict(self, model, signature, inputs):
        values = {name: _as_json(value) for name, value in inputs.items()}
        body = json.dumps({"signature_name": signature, "inputs": values})

        def arrays_in(answer):
            outputs = answer["outputs"]
            if not isinstance(outputs, dict):  # a single output comes without its name
                outputs = {self._only_output(model, signature): outputs}
            return {name: _array(values) for name, values in outputs.items()}

        return self._request(model, ":predict", arrays_in, body)

    def status(self, model):
        return self._request(model, "", versions_in)

    def metadata(self, model):
        return self._request(model, "/metadata", metadata_in)

    def _only_output(self, model, signature):
        if signature not in self._only_outputs:
            (name,) = self.metadata(model).signatures[signature].outputs
            self._only_outputs[signature] = name
        return self._only_outputs[signature]

    def _request(self, model, end, read, body=None):
        """What `read` makes of the JSON at an address of the model, which ends in `end`."""
        address = f"{self._address}/v1/models/{model.name}"
        if model.version is not None:
            address += f"/versions/{model.version}"
        elif model.label is not None:
            address += f"/labels/{model.label}"
        address += end

        def send(until):
            response = self._send(address, body, until)
            if response.status != 200:
                raise _rejection(address, response)
            return response.data

        def parsed(content):
            return read(json.loads(content))

        return self._ask(send, parsed, f"JSON of TF Serving from {address}")

    def _send(self, address, body, until):
        timeout = urllib3.Timeout(total=max(0.001, until - monotonic()))
        options = {"headers": self._headers, "timeout": timeout, "body": body}
        method = "POST" if body else "GET"
        try:
            found = self._session.request(method, address, retries=False, redirect=False, **options)
            if found.status == 200 and not found.data:
                raise urllib3.exceptions.ProtocolError("the answer was cut off")
            return found
        except (urllib3.exceptions.HTTPError, OSError) as error:
            late = isinstance(error, (urllib3.exceptions.TimeoutError, TimeoutError))
            refused = isinstance(error, urllib3.exceptions.NewConnectionError)  # which is one too
            if monotonic() >= until or (late and not refused):
                message = f"{address} did not answer within {self._timeout} s"
                raise ServingError("DEADLINE_EXCEEDED", message) from error
            tls_failed = isinstance(error, urllib3.exceptions.SSLError)
            code = "UNAUTHENTICATED" if tls_failed else "UNAVAILABLE"
            raise ServingError(code, f"{address}: {error}") from error


def _session(address, **options):
    """A `PoolManager`, which uses the machine's proxy if there is one."""
    url = urllib3.util.parse_url(address)
    proxy = urllib.request.getproxies().get(str(url.scheme))
    if proxy and not urllib.request.proxy_bypass(str(url.host)):
        return urllib3.ProxyManager(proxy, **options)
    return urllib3.PoolManager(**options)


def _rejection(address, response):
    """The `ServingError` of an answer whose status is not 200."""
    reason = None
    with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
        reason = json.loads(response.data)["error"]
    if not (isinstance(reason, str) and reason.strip()):
        reason = f"{address} answered with status {response.status}"
        if target := response.headers.get("Location"):
            reason += f", a redirect to {target[:100]!r}, which is not followed"
    return ServingError(_CODES.get(response.status, "UNKNOWN"), reason)


def _as_json(value):
    if isinstance(value, list):
        return [{"b64": base64.b64encode(content).decode()} for content in value]
    return np.asarray(value).tolist()


def _array(values):
    """Floats as float32, integers as int64, bools, or texts as bytes."""
    array = np.array(values, object)  # else each text takes the room of the longest
    kinds = set(map(type, array.ravel().tolist()))
    if kinds <= {float, int}:
        return array.astype(np.int64 if kinds == {int} else np.float32)
    if kinds == {bool}:
        return array.astype(bool)
    check_type(kinds <= {str, dict} and array.ndim, "numbers, or texts", kinds=kinds)
    return np.frompyfunc(_bytes, 1, 1)(array)  # texts, or {"b64": text} if the name ends in _bytes


def _bytes(text):
    return base64.b64decode(text["b64"]) if isinstance(text, dict) else text.encode()
