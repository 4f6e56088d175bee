import re

import programs
from stored_collections import finished

from tfdml.files import locked
from tfdml.scale import __main__ as command


def run(*arguments, cwd="."):
    return programs.run(command.main, *arguments, cwd=cwd)


def test_indexes_and_reports(clustered):
    result = run("index", clustered.folder, "--factory", "IVF8,SQ8", "--report", "true")
    assert result.code == 0, result.err
    assert re.search(r"Index: 597 images, [\d.]+ bytes each: ", result.out)
    lines = result.out.splitlines()
    assert lines[-3].split()[0] == "nprobe=1"
    assert lines[-2].endswith("(stored)")
    assert float(lines[-1].split()[1]) <= float(lines[-3].split()[1])
    again = run("index", clustered.folder, "--factory", "IVF8,SQ8")
    assert again.out.startswith("The index was there: 597 images")


def test_says_what_it_does():
    assert run("--help").out == run().out
    assert "embed   writes the embeddings" in run().out
    assert "--report" in run("index", "--help").out
    assert "IVF4096,SQ8" in run("index", "--help").out
    assert "Unknown command 'indx'. Did you mean 'index'" in run("indx").sentence


def test_rejects_a_second_job_and_what_is_no_collection(clustered, tmp_path):
    with locked(clustered.folder, "taken"):
        sentence = run("index", clustered.folder, "--factory", "SQ8").sentence
    assert f"another job works on {clustered.folder}" in sentence
    assert "there is no" in run("index", tmp_path, "--factory", "SQ8").sentence


def test_checks_all_files_and_names_the_damaged(clustered):
    assert run("check", clustered.folder).out.endswith(
        "11 files of an earlier version have no checksum\n"
    )
    finished(clustered)
    assert run("index", clustered.folder, "--factory", "IVF8,SQ8").code == 0
    assert run("check", clustered.folder).out.startswith("All 13 files with a checksum are whole")
    (clustered.folder / "shards/00002.parquet").unlink()
    path = clustered.folder / "index" / "index.ivfdata"
    path.write_bytes(path.read_bytes()[:-1])
    result = run("check", clustered.folder)
    assert result.code == 1
    assert "00002.parquet" in result.out
    assert "index.ivfdata is damaged (it has " in result.out
    assert "2 of 13 files are missing or damaged" in result.err
