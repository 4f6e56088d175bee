"""The files of serving/ and the page that explains them."""

import pathlib
import re
import subprocess

import yaml
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

ROOT = pathlib.Path(__file__).parents[3]
FOLDER, PAGE = ROOT / "serving", (ROOT / "docs" / "serving.md").read_text()
CANARIES = re.findall(r"```proto\n(.*?)```", PAGE, re.DOTALL)


def models_of(text):
    """The only model of a configuration: (its versions, {label: version})."""
    config = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
    (model,) = config.model_config_list.config
    assert model.base_path == f"/models/{model.name}"
    assert model.model_platform == "tensorflow"
    return list(model.model_version_policy.specific.versions), dict(model.version_labels)


def test_the_models_are_served_by_their_labels():
    assert models_of((FOLDER / "models.config").read_text()) == ([1], {"stable": 1})
    assert [models_of(text) for text in CANARIES] == [
        ([1, 2], {"stable": 1, "canary": 2}),
        ([1, 2], {"stable": 2, "canary": 2}),
    ]


def test_the_sizes_of_batches_rise_to_the_greatest():
    text = (FOLDER / "batching.config").read_text()
    parameters = dict(re.findall(r"(\w+) \{ value: (\d+) \}", text))
    sizes = [int(size) for size in re.findall(r"allowed_batch_sizes: (\d+)", text)]
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == int(parameters["max_batch_size"]) == 32
    for field in ("batch_timeout_micros", "max_enqueued_batches", "num_batch_threads"):
        assert int(parameters[field]) > 0


def test_the_metrics_are_where_prometheus_looks():
    path = "/monitoring/prometheus/metrics"
    text = (FOLDER / "monitoring.config").read_text()
    assert re.sub(r"#.*", "", text).split() == (
        f'prometheus_config {{ enable: true path: "{path}" }}'.split()
    )
    (job,) = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())["scrape_configs"]
    assert job["metrics_path"] == path
    assert path in PAGE
    assert job["static_configs"] == [{"targets": ["localhost:8501"]}]


def service_of(file):
    compose = yaml.safe_load((FOLDER / file).read_text())
    assert set(compose) == {"services"}
    assert set(compose["services"]) == {"tf_serving"}
    return compose["services"]["tf_serving"]


def flags_of(service):
    return dict(flag.removeprefix("--").split("=") for flag in service["command"])


def test_the_container_reads_the_models_and_the_configuration_and_writes_nothing():
    service = service_of("compose.yaml")
    mounts = {mount["target"]: mount for mount in service["volumes"]}
    assert all(mount["type"] == "bind" and mount["read_only"] for mount in mounts.values())
    assert (FOLDER / mounts["/models"]["source"]).resolve() == ROOT / "saved_models"
    assert (FOLDER / mounts["/config"]["source"]).resolve() == FOLDER
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert [port.split(":")[1:] for port in service["ports"]] == [["8500"] * 2, ["8501"] * 2]


def test_batching_adds_to_the_flags_and_they_name_files_that_exist():
    flags, more = (flags_of(service_of(f"compose{name}.yaml")) for name in ("", ".batching"))
    assert more == {
        **flags,
        "enable_batching": "true",
        "batching_parameters_file": "/config/batching.config",
    }
    files = [value for value in more.values() if value.startswith("/config/")]
    assert len(files) == 3
    for value in files:
        assert (FOLDER / value.removeprefix("/config/")).is_file()


def test_the_health_check_finds_the_models_that_are_configured(server, tmp_path):
    name, *command = service_of("compose.yaml")["healthcheck"]["test"]
    assert name == "CMD"
    assert command[:2] == ["bash", "-c"]
    assert "glyphs_lifted" not in command[2]
    config = tmp_path / "models.config"
    check = command[2].replace("$$", "$").replace("8501", str(server.rest))
    check = check.replace("/config/models.config", str(config))
    of_one = (FOLDER / "models.config").read_text()
    for models, healthy in ((["embedder"], True), (["embedder", "nobody"], False), ([], False)):
        config.write_text("".join(of_one.replace("glyphs_lifted", model) for model in models))
        run = subprocess.run(["bash", "-c", check], timeout=20)
        assert (run.returncode == 0) is healthy, models
