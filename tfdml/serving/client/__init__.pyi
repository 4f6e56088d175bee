from .client import Client as Client
from .errors import ImageError as ImageError
from .errors import ServingError as ServingError
