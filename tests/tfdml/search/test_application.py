import os
import re
import threading
import time

import numpy as np
import pytest
from PIL import Image

from tfdml.search.application import create_application
from tfdml.search.picture_files import RejectedError

PNG = "image/png"


@pytest.fixture
def client(search):
    return create_application(search, neighbours=3, upload_bytes=50_000).test_client()


def images_of(client):
    """{name: id} of all images."""
    images = client.get("/api/sample?k=200").json["images"]
    return {image["name"]: image["id"] for image in images}


def error_of(response, status):
    assert response.status_code == status
    assert response.mimetype == "application/json"
    assert list(response.json) == ["error"]
    return response.json["error"]


def test_searches_by_a_picture_of_any_content_type(client, encoded):
    for kind in (PNG, "application/octet-stream", "application/x-www-form-urlencoded"):
        answer = client.post("/api/search", data=encoded((240, 30, 30)), content_type=kind)
        assert answer.status_code == 200
        assert answer.json["ranked_by"] == "distance"
        found = answer.json["results"]
        assert [image["name"] for image in found[:2]] == ["red/bright.png", "red/dark.png"]
        assert len(found) == 3
        assert found[0]["distance"] == pytest.approx(np.linalg.norm([10, 20, 20]), abs=1e-4)
        assert (found[0]["folder"], found[0]["width"], found[0]["height"]) == ("red", 40, 30)
        assert set(answer.json["seconds"]) == {"embedding", "search", "total"}


def test_rejects_another_number_of_images(client, encoded):
    for k in ("0", "201", "-1", "1.5", "x", "", "1e1", "٣", "9" * 30):
        for path in ("similar/0", "sample"):
            answer = client.get(f"/api/{path}", query_string={"k": k})
            assert error_of(answer, 400).startswith("`k` must be")
    answer = client.post("/api/search?k=0", data=encoded((1, 2, 3)))
    assert error_of(answer, 400).startswith("`k` must be")


def test_rejects_what_is_no_picture_or_too_large(client, encoded):
    def asked(content):
        return client.post("/api/search", data=content, content_type=PNG)

    assert "Received: 0 bytes" in error_of(asked(b""), 415)
    assert "must be a complete" in error_of(asked(b"<html>"), 415)
    error_of(asked(encoded((1, 2, 3))[:60]), 400)
    for size in (50_001, 500_000):
        assert "0.05 MB" in error_of(asked(bytes(size)), 413)
    error_of(asked(bytes(50_000)), 415)


def test_serves_images_and_small_copies_by_id(client, folder, encoded):
    key = images_of(client)["blue.png"]
    whole, small = client.get(f"/api/images/{key}"), client.get(f"/api/images/{key}/thumbnail")
    assert (whole.data, whole.mimetype) == ((folder / "blue.png").read_bytes(), PNG)
    assert (small.data[8:12], small.mimetype) == (b"WEBP", "image/webp")
    for answer in (whole, small):
        assert answer.headers["Cache-Control"] == "private, no-cache"
        again = {"If-None-Match": answer.headers["ETag"]}
        assert client.get(answer.request.path, headers=again).status_code == 304
    Image.new("RGB", (9, 9)).save(folder / "blue.png")
    os.utime(folder / "blue.png", ns=(0, 0))
    assert client.get(f"/api/images/{key}", headers=again).status_code == 410


def test_an_image_that_is_gone_is_not_served_from_memory(client, search, folder):
    for path in ("similar/77", "images/77", "images/77/thumbnail"):
        assert "no image with this id. Received: id=77" in error_of(client.get(f"/api/{path}"), 404)
    key = images_of(client)["blue.png"]
    assert client.get(f"/api/images/{key}/thumbnail").status_code == 200
    (folder / "blue.png").unlink()
    error_of(client.get(f"/api/images/{key}"), 404)
    search.refresh()
    error_of(client.get(f"/api/images/{key}/thumbnail"), 404)


def test_nothing_is_served_by_a_path(folder, search, serving):
    (folder.parent / "secret.png").write_bytes(b"secret")
    paths = [
        "/api/images/../../secret.png",
        "/api/images/..%2f..%2fsecret.png",
        "/api/images/%2fetc%2fpasswd",
        "/api/images/0%00.png",
        "/api/images/-1",
        "/api/images/0/../../../secret.png",
        "/secret.png",
        "/../secret.png",
        "/static/../engine.py",
        "/images/blue.png",
    ]
    with serving(search) as ask:
        for path in paths:
            status, content, _ = ask(path)
            assert (status, list(content)) == (404, ["error"]), path


def test_states_its_status(client, search, folder):
    (folder / "text.png").write_bytes(b"no picture")
    search.refresh()
    status = client.get("/api/status").json
    left_out = status.pop("left_out")
    assert left_out == [{"name": "text.png", "cause": "it is no image"}]
    assert status == {
        "images": 5,
        "folder": "images",
        "model": "by_colour/1",
        "ranked_by": "distance",
        "reranked": 0,
        "exact": True,
        "neighbours": 3,
        "upload_bytes": 50_000,
        "types": ["image/bmp", "image/gif", "image/jpeg", "image/png", "image/webp"],
        "refreshing": None,
        "failure": None,
        "uploads": False,
    }


def test_searches_while_it_is_refreshed(client, search, model, folder, encoded):
    for number in range(6):
        (folder / f"{number}.png").write_bytes(encoded((number, 0, 0)))
    embed, reached, go_on = model.embed, threading.Event(), threading.Event()

    def waiting(*given):
        reached.set()
        assert go_on.wait(10)
        return embed(*given)

    model.embed = waiting
    assert client.post("/api/refresh").status_code == 202
    assert reached.wait(10)
    assert client.get("/api/status").json["refreshing"] == {"done": 0, "total": 6}
    key = images_of(client)["blue.png"]
    assert len(client.get(f"/api/similar/{key}").json["results"]) == 3
    assert error_of(client.post("/api/refresh"), 409) == "A refresh is under way"
    with pytest.raises(RejectedError, match="A refresh is under way"):
        search.refresh()
    go_on.set()
    while (status := client.get("/api/status").json)["refreshing"]:
        time.sleep(0.01)
    assert (status["images"], status["failure"]) == (11, None)


def test_samples_differ(client):
    drawn = {
        tuple(image["id"] for image in client.get("/api/sample?k=2").json["images"])
        for _ in range(20)
    }
    assert len(drawn) > 3


def test_every_answer_has_headers_that_protect(client):
    for path in ("/", "/search.js", "/search.css", "/api/status", "/api/images/0", "/missing"):
        headers = client.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert ("sandbox" in policy) == (path not in ("/", "/search.js", "/search.css"))
        assert "Access-Control-Allow-Origin" not in headers
    assert client.get("/api/status").headers["Cache-Control"] == "no-store"


def test_the_page_needs_nothing_from_elsewhere(client):
    kinds = {"/": "text/html", "/search.css": "text/css", "/search.js": "text/javascript"}
    for path, kind in kinds.items():
        answer = client.get(path)
        assert (answer.status_code, answer.mimetype) == (200, kind)
        assert not re.search(r"https?://|//cdn|@import", answer.text)


def test_other_sites_cannot_ask_by_a_browser(search, encoded):
    options = {"neighbours": 3, "upload_bytes": 50_000}
    options["trusted_hosts"] = ["LOCALHOST", "127.0.0.1", "::1"]
    client = create_application(search, **options).test_client()
    for host in ("LocalHost:8000", "127.0.0.1", "127.0.0.1:8000", "[::1]:8000"):
        assert client.get("/api/status", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "127.0.0.1.evil.example", "evil.example:80"):
        sentence = error_of(client.get("/api/status", headers={"Host": host}), 400)
        assert "--trusted_hosts" in sentence
        assert f"Received: host={host}" in sentence
    for path in ("/api/refresh", "/api/search"):
        for headers in (
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Origin": "http://evil.example"},
            {"Origin": "http://localhost:9999", "Host": "localhost:8000"},
            {"Origin": "null"},
        ):
            error_of(client.post(path, data=encoded((1, 2, 3)), headers=headers), 403)
    headers = {"Sec-Fetch-Site": "same-origin", "Origin": "https://Localhost", "Host": "localhost"}
    assert client.post("/api/search", data=encoded((1, 2, 3)), headers=headers).status_code == 200


def test_other_methods_and_addresses_get_a_sentence(client):
    answer = client.get("/api/search")
    error_of(answer, 405)
    assert "POST" in answer.headers["Allow"]
    error_of(client.get("/api/nothing"), 404)


def test_what_fails_unforeseen_reveals_nothing_of_the_inside(client, search, monkeypatch):
    def fail(*_):
        raise RuntimeError("/home/secret")

    monkeypatch.setattr(search, "by_id", fail)
    assert "secret" not in error_of(client.get("/api/similar/0"), 500)


def test_a_model_that_decides_says_so_with_the_reason(client, search, encoded):
    search.model.decides = True
    decisions = [
        client.post("/api/search", data=encoded(colour), content_type=PNG).json["decision"]
        for colour in ((240, 10, 10), (10, 10, 250))
    ]
    assert [decision["known"] for decision in decisions] == [True, False]
    assert {decision["class"] for decision in decisions} == {"red"}
    assert decisions[0]["distance"] == pytest.approx(0.1)
    assert {"probability", "threshold", "method"} < set(decisions[0])


def test_a_condition_chooses_what_is_found_in_a_folder(client):
    key = images_of(client)["red/bright.png"]
    where = {"where": "label = 'green' or path like '%blue%'"}
    found = client.get(f"/api/similar/{key}", query_string=where).json["results"]
    assert {image["name"] for image in found} == {"green/bright.png", "green/dark.png", "blue.png"}
    assert {image["folder"] for image in found} == {"green", ""}
    wrong = client.get(f"/api/similar/{key}?where=colour%20%3D%201")
    assert re.match("`where` must be a condition in SQL.*label", error_of(wrong, 400))


def test_a_folder_is_changed_by_its_files(client, encoded):
    post = client.post("/api/images", data=encoded((1, 2, 3)))
    assert (post.status_code, "refresh the index" in post.json["error"]) == (409, True)
    assert client.delete("/api/images/0").status_code == 409
