"""The program a reader process runs. Apart from `readers`, so that what it sends has the same names there and here."""

import gc
import sys
from multiprocessing.connection import Connection

from recollect.readers import serve

if __name__ == "__main__":
    # Records are made and dropped by the million and hold no cycles: looking for some takes a tenth of the time.
    gc.disable()
    serve(Connection(int(sys.argv[1])))
