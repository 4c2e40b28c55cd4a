"""The program a reader process runs. Apart from `readers`, so that what it sends has the same names there and here."""

import sys
from multiprocessing.connection import Connection

from recollect.readers import serve

if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
