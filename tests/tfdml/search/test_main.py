import importlib.util
import re
import types

import programs
import pytest

from tfdml.search import __main__ as command
from tfdml.search import search_model, server


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--images", "."], "model"),
        (["--model", "x", "--images", ".", "--neighbors", "3"], "Did you mean --neighbours?"),
        (["--model", "nowhere", "--images", "."], "no SavedModel at nowhere"),
    ],
)
def test_a_wrong_argument_gets_one_sentence(arguments, sentence):
    done = programs.run(command.main, *arguments, cwd=".")
    assert sentence in done.sentence
    assert done.err.startswith("tfdml.search: error: ")
    assert done.err.count("\n") == 1


def test_says_what_to_install(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "waitress" else find(name)
    )
    done = programs.run(command.main, "--model", "x", "--images", ".", cwd=".")
    assert "the search needs waitress: pip install -e '.[search]'" in done.sentence


def test_the_index_is_named_after_the_model_and_the_folder(tmp_path):
    version = tmp_path / "saved_models" / "cars" / "3"
    names = {command.default_index(version, tmp_path / name) for name in ("a/photos", "b/photos")}
    assert len(names) == 2
    for name in names:
        assert re.fullmatch(r"indexes/cars_3_photos_[0-9a-f]{8}", name)
    long = command.default_index(version, tmp_path / ("é" * 127))
    assert len(long.removeprefix("indexes/").encode()) <= 255


@pytest.mark.parametrize(
    ("host", "local", "address"),
    [
        ("127.0.0.1", True, "http://127.0.0.1:80/"),
        ("127.9.9.9", True, "http://127.9.9.9:80/"),
        ("localhost", True, "http://localhost:80/"),
        ("::1", True, "http://[::1]:80/"),
        ("0.0.0.0", False, "http://127.0.0.1:80/"),
        ("::", False, "http://[::1]:80/"),
        ("192.168.0.7", False, "http://192.168.0.7:80/"),
        ("search.example.org", False, "http://search.example.org:80/"),
    ],
)
def test_knows_which_hosts_are_this_computer(host, local, address):
    assert command.is_local(host) == local
    assert command.address(host, 80) == address


@pytest.fixture
def version(model, tmp_path, monkeypatch):
    """A folder that is opened as the `model`."""
    monkeypatch.setattr(search_model, "SearchModel", lambda version: model)
    version = tmp_path / "saved_models" / "colours" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").touch()
    return version


def test_serves_from_the_command_line(version, folder, tmp_path, encoded, monkeypatch):
    (folder / "text.png").write_bytes(b"no picture")
    answers = {}

    def serve(application, **options):
        def run():
            answers["options"], ask = options, application.test_client()
            answers["found"] = ask.post("/api/search?k=1", data=encoded((250, 10, 10))).json
            answers["other"] = ask.get("/api/status", headers={"Host": "evil.example"}).status_code

        return types.SimpleNamespace(effective_port=81, run=run)

    monkeypatch.setattr(server, "serve", serve)
    flags = ["--model", version, "--images", folder, "--port", 0, "--upload_megabytes", 2]
    with pytest.warns(UserWarning, match=r"1 files: text\.png"):
        done = programs.run(command.main, *flags, cwd=tmp_path)
    assert done.code == 0, done.err
    assert answers["options"] == {"host": "127.0.0.1", "port": 0, "upload_bytes": 2_000_000}
    assert answers["found"]["results"][0]["name"] == "red/bright.png"
    assert answers["other"] == 400
    counted, index, address = done.out.splitlines()
    assert counted == f"5 images of {folder} (5 added, 0 removed), ranked by distance"
    (path,) = re.findall(r"indexes/colours_1_images_[0-9a-f]{8}", index)
    assert (tmp_path / path / "manifest.json").is_file()
    assert "http://127.0.0.1:81/" in address


@pytest.mark.parametrize(
    ("name", "ends", "wrong"),
    [
        ("port", (0, 65535), (-1, 65536)),
        ("upload_megabytes", (1024,), (1025,)),
        ("neighbours", (1, 200), (0, 201)),
    ],
)
def test_rejects_what_is_out_of_range(name, ends, wrong):
    for value in ends:
        command.Search("model", "images", **{name: value})
    for value in wrong:
        with pytest.raises(ValueError, match=f"`{name}` .*Received: {name}={value}"):
            command.Search("model", "images", **{name: value})


@pytest.mark.parametrize(
    ("host", "given", "trusted"),
    [
        ("localhost", None, [*command.LOCAL_NAMES, "localhost"]),
        ("127.0.0.2", None, [*command.LOCAL_NAMES, "127.0.0.2"]),
        ("localhost", ["a.org"], ["a.org"]),
        ("0.0.0.0", None, None),
        ("0.0.0.0", ["a.org"], ["a.org"]),
    ],
)
def test_warns_of_a_host_that_others_reach(host, given, trusted, monkeypatch, recwarn):
    served, done = [], []

    def serve(application, **_):
        served.append(application["trusted_hosts"])
        return types.SimpleNamespace(effective_port=80, run=lambda: done.append("run"))

    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.setattr("tfdml.search.application.create_application", lambda _, **given: given)
    settings = command.Search("model", "images", host=host, trusted_hosts=given)
    command.run_server(settings, types.SimpleNamespace(stop=lambda: done.append("stop")))
    assert (served, done) == ([trusted], ["run", "stop"])
    warned = ["no password" in str(of.message) for of in recwarn]
    assert warned == [True] * (host == "0.0.0.0")


def test_an_index_file_of_an_earlier_version_gets_one_sentence(version, folder, tmp_path):
    (tmp_path / "index.npz").touch()
    flags = ["--model", version, "--images", folder, "--index", "index.npz"]
    sentence = programs.run(command.main, *flags, "--port", 0, cwd=tmp_path).sentence
    assert "`index` must be a folder. A file is of an earlier version: remove it" in sentence


def test_a_taken_port_is_named_before_it_embeds(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "find_version", lambda path: path)
    monkeypatch.setattr(command, "open_folder", lambda *_: pytest.fail("opened"))
    with server.listening("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        flags = ["--model", "x", "--images", tmp_path, "--port", port]
        sentence = programs.run(command.main, *flags, cwd=".").sentence
    assert f"cannot listen at 127.0.0.1:{port} (Address already in use" in sentence
