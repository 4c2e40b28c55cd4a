"""The program `recollect`, which is `python -m recollect` too."""

import gc
import os


def run() -> None:
    os.umask(0o077)  # what is written is the user's alone, and the user's to write: neither more nor less
    # Before anything is loaded: objects come by the ten thousand and hold few cycles. To look for some as often as
    # Python does takes a tenth of a sweep, and a tenth of the start of a search.
    gc.set_threshold(50_000)
    from recollect.cli import main

    try:
        main()
    finally:
        gc.freeze()  # nor is it worth looking through all of them when the program ends


if __name__ == "__main__":
    run()
