"""Tables of the pages of results, made of the results that are kept beside them."""


def write_page(path, table):
    raise NotImplementedError
