"""Damages files in a process of their own: each time a named error or the same answer."""

import os
import pathlib
import random
import subprocess
import sys


def check_damage(answers, folder, places):
    """Damages each visible file of a folder at places drawn at random.

    A reading must give the same answer, or a ValueError or OSError that names the file or `folder`.
    It must not end the process, nor raise another error.

    Args:
        answers: Function of a test module, from the folder to what is read there.
        folder: The folder.
        places: Number of places of each file.
    """
    module = pathlib.Path(sys.modules[answers.__module__].__file__)
    arguments = f"{module.stem}.{answers.__name__}, {str(folder)!r}, {places}"
    code = f"import damage, {module.stem}; damage.damage_each_file({arguments})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(module.parent), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (lines[-2:], done.stderr[-2000:])
    assert lines[-1] == "done True"
    assert "WRONG" not in lines, lines[lines.index("WRONG") - 2 :][:3]
    assert lines.count("right") == places * lines.count("file") > 0


def damage_each_file(answers, folder, places):
    """Prints each file and place, and whether the answer or the error was right."""
    rng, folder = random.Random(0), pathlib.Path(folder)
    expected = answers(folder)
    for path in sorted(path for path in folder.rglob("[!.]*") if path.is_file()):
        print("file", flush=True)
        content = path.read_bytes()
        for _ in range(places):
            place = rng.randrange(len(content))
            print(path.name, place, flush=True)
            path.write_bytes(_damaged(content, place, rng))
            try:
                right = answers(folder) == expected
            except (ValueError, OSError) as error:
                print(error, flush=True)
                right = path.name in str(error) or str(folder) in str(error)
            print("right" if right else "WRONG", flush=True)
        path.write_bytes(content)
    print("done", answers(folder) == expected)


def _damaged(content, place, rng):
    """A bit changed, 40 bytes zeroed, or the rest cut off."""
    changed = rng.choice([bytes([content[place] ^ 1 << rng.randrange(8)]), bytes(40), b""])
    return content[:place] + changed + (content[place + len(changed) :] if changed else b"")
