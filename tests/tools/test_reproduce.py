"""docs/reproduce.md is the page that tools/reproduce.py makes."""

import re
import shlex
import shutil

import pytest
import reproduce
import yaml

from tfdml.programs import evaluate, train
from tfdml.runs.table import read_table

REPORTED = yaml.safe_load((reproduce.ROOT / "docs" / "reported.yaml").read_text())
CONTENT = yaml.safe_load((reproduce.ROOT / "docs" / "reproduce.yaml").read_text())
MEASURED = CONTENT["measured"]
ROWS = [row for table in CONTENT["tables"] for row in table["rows"]]


def test_the_page_is_as_it_writes_it():
    text = (reproduce.ROOT / reproduce.DOCUMENT).read_text()
    assert text == reproduce.page(), "run: python tools/reproduce.py"


def test_a_number_that_changes_is_written(tmp_path, monkeypatch, capsys):
    for name in ("docs", "recipes"):
        shutil.copytree(reproduce.ROOT / name, tmp_path / name)
    monkeypatch.setattr(reproduce, "ROOT", tmp_path)
    document = tmp_path / "docs" / "reproduce.md"
    reproduce.main(["--check"])
    results = tmp_path / "docs" / "results" / "pddm_cars_claims.csv"
    results.write_text(re.sub(r"(?m)^(pddm,.*,distance),0\.\d+", r"\1,0.481", results.read_text()))
    earlier = tmp_path / "docs" / "results" / "objectives.md"
    earlier.write_text(
        earlier.read_text().replace("| Lifted structured | 32.2 |", "| Lifted structured | 32.3 |")
    )
    reported = tmp_path / "docs" / "reported.yaml"
    reported.write_text(reported.read_text().replace("[58.3, 69.2,", "[58.4, 69.2,"))
    with pytest.raises(SystemExit) as ended:
        reproduce.main(["--check"])
    assert ended.value.code == 1
    assert "docs/reproduce.md" in capsys.readouterr().err
    reproduce.main([])
    assert "| PDDM + Quadruplet | 58.4 | 69.2 |" in document.read_text()
    assert "recall@1 48.1 ± 0.0" in document.read_text()
    assert "Recall@1 32.3" in document.read_text()
    reproduce.main(["--check"])


@pytest.mark.parametrize(
    ("path", "numbers"),
    [
        ("pddm_table1.pddm_quadruplet.cars196", [57.4, 68.6, 80.1, 89.4, 92.3, 94.9]),
        ("hdc_table5_sop.hdc_384", [69.5, 84.4, 92.8, 97.7]),
        ("hdc_table6_vehicleid_map.hdc_384.2", [0.575]),
        ("dmlda_table1.sop.dml_da_con", [89.5, 70.56, 84.09, 94.09, 97.72]),
        ("pddm_table2.zeroshot_imagenet2010_flat_top5.ours", [48.2]),
    ],
)
def test_the_numbers_of_a_row_are_those_of_the_paper(path, numbers):
    assert reproduce.numbers(REPORTED, path) == numbers


def test_statistics_follow_the_recall():
    found = reproduce.numbers(REPORTED, "hdc_table1_cars196.hdc_ensemble_384")
    assert found == [73.7, 83.2, 89.5, 93.8, 96.5, 98.4, 0.756, 0.015, 1.08, 0.027, 2.5]


def rows_of_the_papers():
    """The places of all rows of the tables."""
    sets = ("cub200", "cars196")
    for table in ("pddm_table1", "hdc_table3"):
        for row, found in REPORTED[table].items():
            if row != "K":
                yield from (f"{table}.{row}.{name}" for name in sets if found[name][0] is not None)
    for part, methods in REPORTED["pddm_table2"].items():
        yield from (f"pddm_table2.{part}.{method}" for method in methods)
    for table in ("hdc_table1_cars196", "hdc_table2_cub200", "hdc_table4_inshop", "hdc_table5_sop"):
        yield from (f"{table}.{row}" for row in REPORTED[table] if row != "cols")
    for row in REPORTED["hdc_table6_vehicleid_map"]:
        if row != "cols":
            yield from (f"hdc_table6_vehicleid_map.{row}.{size}" for size in range(3))
    for name in ("cars196", "cub200", "sop"):
        for method in REPORTED["dmlda_table1"]["methods"]:
            yield f"dmlda_table1.{name}.{method}"


def test_every_row_of_the_papers_is_there_once():
    in_tables = [row["reported"] for row in ROWS if "reported" in row]
    for row in rows_of_the_papers():
        assert in_tables.count(row) == 1, row


def test_a_row_has_a_recipe_or_a_reason():
    for row in ROWS:
        assert ("recipe" in row) != ("without" in row), row["name"]


def test_every_recipe_of_a_paper_has_a_row():
    named = {row.get("recipe") for row in ROWS} - {None}
    found = {
        f"{paper}/{row}"
        for paper in ("density", "hdc", "lifted", "pddm")
        for row in read_table(reproduce.ROOT / "recipes" / paper / "papers.yaml").rows
    }
    assert named == found


def commands(program):
    text = (reproduce.ROOT / "docs" / "reproduce.md").read_text().partition(reproduce.BEGIN)[2]
    return sorted(set(re.findall(rf"`python ({program}\.py [^`]*)`", text)))


def test_train_and_evaluate_take_the_commands(monkeypatch):
    monkeypatch.chdir(reproduce.ROOT)
    trained, scored = commands("train"), commands("evaluate")
    assert len(trained) > 60
    runs = {train.parse(shlex.split(command)[1:])[0].run for command in trained}
    for command in scored:
        settings = evaluate.parse(*evaluate.task_of(shlex.split(command)[1:]))
        assert settings.model.removeprefix("saved_models/") in runs, command


def test_what_was_not_run_has_no_number_and_says_so():
    rows = [line for line in reproduce.page().splitlines() if "<br>" in line]
    here = [line.rpartition(" | ")[2] for line in rows]
    assert len(here) == sum("recipe" in row for row in ROWS)
    for row, cell in zip((row for row in ROWS if "recipe" in row), here, strict=True):
        assert ("ours" in row) != cell.startswith(reproduce.NOT_RUN)
        if "ours" in row:
            assert MEASURED[row["ours"]["of"]]["what"] in cell


def test_rows_of_a_figure_of_lifted_see_the_same_images():
    figures = {}
    for table in yaml.safe_load((reproduce.ROOT / "docs" / "reproduce.yaml").read_text())["tables"]:
        if table["title"].startswith("Lifted, Figure"):
            recipes = [reproduce.settings_of(row["recipe"]) for row in table["rows"]]
            figures[table["title"]] = {
                (r.dataset, r.image_size, r.warp_size, r.trim_white, r.mean_image) for r in recipes
            }
    assert len(figures) == 3
    assert all(len(kinds) == 1 for kinds in figures.values()), figures
