from served_models import (  # noqa: F401
    complete,
    complete_signatures,
    contents,
    files,
    protocol_test_server,
    served,
)
