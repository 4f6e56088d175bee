import subprocess
import sys

import pytest

from tfdml import losses
from tfdml.models import build_embedder

LOAD = """
{imports}
model = keras.models.load_model({path!r})
print(type(model.loss).__name__, type(model.optimizer).__module__)
"""


@pytest.mark.parametrize(
    "imports",
    [
        pytest.param("import keras, tfdml", marks=pytest.mark.slow),
        "import tfdml, tensorflow, keras",
    ],
)
def test_a_fresh_program_loads_a_saved_model(imports, tmp_path):
    from tfdml import EmbeddingModel, optimizers

    model = EmbeddingModel(build_embedder("small_cnn", 4, input_shape=(8, 8, 1)))
    model.compile(optimizer=optimizers.SGD(0.1), loss=losses.get("npair"))
    path = str(tmp_path / "model.keras")
    model.save(path)
    program = LOAD.format(imports=imports, path=path)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "NPairLoss tfdml.optimizers", run.stderr[-2000:]
