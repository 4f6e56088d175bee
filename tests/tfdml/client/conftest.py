from served_models import (  # noqa: F401
    address,
    contents,
    files,
    protocol_test_server,
    served,
    server,
    tensorflow_model_server,
)
