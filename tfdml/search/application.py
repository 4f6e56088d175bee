"""The search over HTTP: a page and a JSON interface. Images have ids, paths are never accepted."""

import functools
import importlib.resources
import random
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import flask
from werkzeug.exceptions import HTTPException

from tfdml.images.image_headers import readable
from tfdml.search import MOST_NEIGHBOURS
from tfdml.search.picture_files import MIME_TYPES, RejectedError, read_header, thumbnail
from tfdml.serving.versions import name_of

PICTURES = 6  # embedded at once or waiting for it; more are told to come again
_THUMBNAILS = 2000  # kept in memory, of some 10 kB each
_MIME_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_FOR_THE_PAGE = (
    "default-src 'none'; img-src 'self' blob: data:; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_FOR_THE_REST = "default-src 'none'; frame-ancestors 'none'; sandbox"
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def create_application(search, *, neighbours, upload_bytes, trusted_hosts=None):
    """The WSGI application of a `CollectionSearch`; without `trusted_hosts` any Host header is."""
    app: Any = flask.Flask(__name__, static_folder=None, template_folder=None)
    app.json.sort_keys = False
    app.config["MAX_CONTENT_LENGTH"] = upload_bytes
    places = threading.BoundedSemaphore(PICTURES)
    small = functools.lru_cache(_THUMBNAILS)(lambda key: thumbnail(search.images.read(key)))

    @app.get("/", defaults={"suffix": "html"})
    @app.get("/search.<any(css, js):suffix>")
    def page(suffix):
        file = importlib.resources.files("tfdml.search") / "page" / f"search.{suffix}"
        return flask.Response(file.read_text("utf-8"), mimetype=_MIME_TYPES[suffix])

    @app.get("/api/status")
    def status():
        left_out, refreshing = sorted(search.left_out.items()), search.refreshing
        return {
            "images": len(search),
            "folder": search.folder.name,
            "model": name_of(search.model.version),
            "ranked_by": search.ranked_by,
            "reranked": search.rerank,
            "exact": search.exact,
            "neighbours": neighbours,
            "upload_bytes": upload_bytes,
            "types": sorted(MIME_TYPES.values()),
            "left_out": [{"name": name, "cause": cause} for name, cause in left_out],
            "refreshing": refreshing and dict(zip(("done", "total"), refreshing, strict=True)),
            "failure": search.failure,
            "uploads": search.uploads is not None,
        }

    @app.post("/api/search")
    def by_picture():
        began = time.perf_counter()
        count = _count(neighbours)
        picture = flask.request.get_data(cache=False, parse_form_data=False)
        if not places.acquire(blocking=False):
            raise RejectedError("Too many pictures at once: try again in a second", status=503)
        try:
            return _answer(search.by_picture(picture, count, _where()), began)
        finally:
            places.release()

    @app.post("/api/images")
    def add():
        key = search.add(flask.request.get_data(cache=False, parse_form_data=False))
        return _image(key, search.images.entry(key)), 201

    @app.delete("/api/images/<int:key>")
    def remove(key):
        search.remove(key)
        return status()

    @app.get("/api/similar/<int:key>")
    def by_id(key):
        began = time.perf_counter()
        answer = _answer(search.by_id(key, _count(neighbours), _where()), began)
        return {"query": _image(key, search.images.entry(key)), **answer}

    @app.get("/api/sample")
    def sample():
        drawn = search.sample(_count(neighbours), seed=random.getrandbits(32))
        return {"images": [_image(key, entry) for key, entry in drawn.items()]}

    @app.get("/api/images/<int:key>")
    def picture(key):
        content = readable(search.images.read(key))
        return _file(content, MIME_TYPES[read_header(content)[0]])

    @app.get("/api/images/<int:key>/thumbnail")
    def small_picture(key):
        search.images.entry(key)  # raises if the image is gone, as its thumbnail may be cached
        return _file(small(key), MIME_TYPES["WEBP"])

    @app.post("/api/refresh")
    def refresh():
        search.start_refresh()
        return status(), 202

    trusted = {name.lower() for name in trusted_hosts or ()}

    @app.before_request
    def reject_other_sites():
        if trusted_hosts is not None and _host_name() not in trusted:
            expected = "This host name is not trusted; add it with --trusted_hosts"
            host = flask.request.headers.get("Host")
            raise RejectedError(f"{expected}. Received: host={host}")
        if flask.request.method in ("POST", "DELETE") and _is_of_another_site():
            received = {name: flask.request.headers.get(name) for name in ("Origin", "Host")}
            expected = "Requests from other sites are not allowed; a proxy must forward Host"
            raise RejectedError(f"{expected}. Received: {received}", status=403)

    @app.after_request
    def protect(response):
        is_page = flask.request.endpoint == "page"
        policy = _FOR_THE_PAGE if is_page else _FOR_THE_REST
        response.headers.update({"Content-Security-Policy": policy, **_HEADERS})
        response.headers.setdefault("Cache-Control", "no-cache" if is_page else "no-store")
        return response

    @app.errorhandler(RejectedError)
    def rejected(error):
        headers = {"Retry-After": "1"} if error.status == 503 else {}
        return {"error": str(error)}, error.status, headers

    @app.errorhandler(HTTPException)
    def failed(error):
        too_large = f"The picture must be a file of at most {upload_bytes / 1e6:g} MB"
        sentence = too_large if error.code == 413 else error.description
        headers = [(name, value) for name, value in error.get_headers() if name == "Allow"]
        return {"error": sentence}, error.code, headers

    @app.errorhandler(Exception)
    def broken(error):
        app.logger.error("a request failed", exc_info=error)
        return {"error": "The search failed; its terminal shows the error"}, 500

    return app


def _is_of_another_site():
    """Whether a browser says that a page of another host or port sent the request."""
    headers = flask.request.headers
    origin, host = headers.get("Origin"), headers.get("Host", "")
    another = origin is not None and origin.partition("://")[2].lower() != host.lower()
    return another or headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")


def _host_name():
    """The host name of the request, in lower case and without its port."""
    try:
        return urlsplit(f"//{flask.request.headers.get('Host', '')}").hostname
    except ValueError:
        return None


def _count(neighbours):
    """The number of images asked for."""
    text = flask.request.args.get("k", str(neighbours))
    whole = text.isascii() and text.isdigit() and len(text) < 10
    if not whole or not 1 <= int(text) <= MOST_NEIGHBOURS:
        expected = f"`k` must be a whole number from 1 to {MOST_NEIGHBOURS}"
        raise RejectedError(f"{expected}. Received: k={text}")
    return int(text)


def _where():
    """The condition that images must meet."""
    return flask.request.args.get("where", "").strip()


def _answer(answer, began):
    results = [
        {**_image(found.id, found.entry), **_rounded(found.scores, 6)} for found in answer.found
    ]
    seconds = _rounded({**answer.seconds, "total": time.perf_counter() - began}, 5)
    decided = {"decision": answer.decision} if answer.decision else {}
    return {"ranked_by": answer.ranked_by, **decided, "results": results, "seconds": seconds}


def _rounded(values, digits):
    return {name: round(value, digits) for name, value in values.items()}


def _image(key, entry):
    return {
        "id": key,
        "name": entry.name,
        "folder": entry.folder,
        "width": entry.width,
        "height": entry.height,
        "image": f"api/images/{key}",
        "thumbnail": f"api/images/{key}/thumbnail",
    }


def _file(content, mime_type):
    """A response that browsers keep, but check each time: another index may have the same id."""
    headers = {"Cache-Control": "private, no-cache"}
    response = flask.Response(content, mimetype=mime_type, headers=headers)
    response.add_etag()
    return response.make_conditional(flask.request)
