"""Requests over REST."""

import base64
import json
import time

import numpy as np
import requests
import requests.adapters
import urllib3

from tfdml.client.service import ServingError, metadata_in, versions_in, well_formed

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
_PIECE = 2**16  # bytes read at once


class RestService:
    """The REST interface of a server.

    Args:
        address: Such as `http://host:8501`, with or without a path.
        timeout: Seconds that a request may take.
        headers: {name: text}, sent with every request.
        tls: None, or {name: path or None}, as `connect` describes them.
        connections: Most connections kept open.
    """

    def __init__(self, address, *, timeout, headers, tls, connections):
        self._address, self._timeout = address.rstrip("/"), timeout
        self._only_outputs = {}
        self._session = requests.Session()
        adapter = requests.adapters.HTTPAdapter(pool_maxsize=connections)
        self._session.mount(self._address, adapter)
        self._session.headers.update(headers)
        if "authorization" in map(str.lower, headers):
            self._session.auth = lambda request: request  # else ~/.netrc would replace the header
        self._options = {"timeout": timeout, "stream": True}
        if tls is not None:
            names = ("authority", "certificate", "key")
            authority, *own = (tls[name] and str(tls[name]) for name in names)
            # Set per request: the environment's certificate bundle overrides the session's.
            self._options.update(verify=authority, cert=tuple(own) if all(own) else None)

    def close(self):
        self._session.close()

    def predict(self, model, signature, inputs):
        """Like `GrpcService.predict`; floats are returned as float32 and integers as int64."""
        inputs = {name: _as_json(value) for name, value in inputs.items()}
        body = json.dumps({"signature_name": signature, "inputs": inputs})
        answer = self._ask("POST", model, ":predict", body)
        with well_formed():
            outputs = answer["outputs"]
            if not isinstance(outputs, dict):  # a single output comes without its name
                outputs = {self._only_output(model, signature): outputs}
            return {name: _array(values) for name, values in outputs.items()}

    def status(self, model):
        return versions_in(self._ask("GET", model))

    def metadata(self, model):
        return metadata_in(self._ask("GET", model, "/metadata"))

    def _only_output(self, model, signature):
        if signature not in self._only_outputs:
            (name,) = self.metadata(model).signatures[signature].outputs
            self._only_outputs[signature] = name
        return self._only_outputs[signature]

    def _ask(self, method, model, end="", body=None):
        """The JSON of the server's answer."""
        address = f"{self._address}/v1/models/{model.name}"
        if model.version is not None:
            address += f"/versions/{model.version}"
        elif model.label is not None:
            address += f"/labels/{model.label}"
        status, content = self._send(method, address + end, body)
        if status == 200:
            with well_formed():
                return json.loads(content)
        try:
            reason = json.loads(content)["error"]
        except (ValueError, LookupError, TypeError):
            reason = None
        code = _CODES.get(status, "UNKNOWN")
        raise ServingError(code, reason or f"{address + end} answered with status {status}")

    def _send(self, method, address, body):
        """(status, bytes) of an answer; the timeout applies to all of it, not only the start."""
        until = time.monotonic() + self._timeout
        try:
            with self._session.request(method, address, data=body, **self._options) as response:
                pieces = []
                while piece := response.raw.read1(_PIECE, decode_content=True):
                    pieces.append(piece)
                    if time.monotonic() > until:
                        raise requests.Timeout
                if response.raw.length_remaining or (response.ok and not pieces):
                    raise requests.ConnectionError("the answer was cut off")
                return response.status_code, b"".join(pieces)
        except (requests.Timeout, urllib3.exceptions.TimeoutError) as error:
            message = f"{address} did not answer within {self._timeout} s"
            raise ServingError("DEADLINE_EXCEEDED", message) from error
        except requests.exceptions.SSLError as error:
            raise ServingError("UNAUTHENTICATED", f"{address}: {error}") from error
        except (requests.ConnectionError, urllib3.exceptions.HTTPError) as error:
            cause = getattr(error.args[0] if error.args else None, "reason", error)
            raise ServingError("UNAVAILABLE", f"{address}: {cause}") from error
        except requests.RequestException as error:
            raise ServingError("UNKNOWN", f"{address}: {error}") from error


def _as_json(value):
    if isinstance(value, list):
        return [{"b64": base64.b64encode(content).decode()} for content in value]
    return np.asarray(value).tolist()


def _array(values):
    array = np.array(values)
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    if array.dtype.kind in "UO":  # texts, or {"b64": text} if the name ends in _bytes
        return np.frompyfunc(_bytes, 1, 1)(np.array(values, object))
    return array


def _bytes(text):
    return base64.b64decode(text["b64"]) if isinstance(text, dict) else text.encode()
