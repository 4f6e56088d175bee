# Pyright's own types of TensorFlow lack names such as `tf.random.experimental` and reject seeds,
# shapes and paddings that TensorFlow takes.
from typing import Any

def __getattr__(name: str) -> Any: ...
