"""The program `recollect`, also run as `python -m recollect`."""

import gc
import os
import sys


def run() -> None:
    try:
        os.umask(0o077)  # only the user may read or write what is created here
        # Before anything is loaded: there are tens of thousands of objects with few cycles. Collecting them as often as
        # Python does by default takes a tenth of a sweep, and a tenth of the start of a search.
        gc.set_threshold(50_000)
        if sys.argv[1:] in (["statusline"], ["statusline", "--json"]):
            # An agent waits for it several times a minute: it does without the command line's parser.
            from recollect.cli.statusline import print_status_line

            print_status_line(as_json="--json" in sys.argv)
            return
        if sys.argv[1:2] == ["mcp"] and _serves(sys.argv[2:]):
            return
        from recollect.cli import main

        main()
    except (KeyboardInterrupt, RuntimeError) as error:  # while modules were loading; later ones end in the command
        if not isinstance(error.__cause__ or error, KeyboardInterrupt):  # the making of a class wraps it
            raise
        sys.exit("\nAborted!")
    finally:
        gc.freeze()  # a last collection at exit is not worth its time either


def _serves(words: list[str]) -> bool:
    """Serve an agent, which waits for it, without the command line's parser; what else was typed is left to that."""
    if words not in ([], ["--write-tools"]):
        return False
    from recollect.mcp import serve
    from recollect.model.errors import NotFound, NotInGroup

    try:
        serve(can_write=bool(words))
    except (NotFound, NotInGroup):  # said in the words of a command
        return False
    return True


if __name__ == "__main__":
    run()
