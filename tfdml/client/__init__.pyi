from .client import Client as Client
from .encoding import ImageError as ImageError
from .service import ServingError as ServingError
