from . import application as application
from . import collection_search as collection_search
from . import folder_search as folder_search
from . import search_model as search_model
from . import server as server

MOST_NEIGHBOURS: int
