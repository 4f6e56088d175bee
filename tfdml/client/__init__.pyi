from .client import Client as Client
from .images import ImageError as ImageError
from .service import ServingError as ServingError
