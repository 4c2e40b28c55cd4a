"""Sessions as documents: Markdown and HTML to read and share, JSON with everything, digests as a folder of pages."""

from recollect.model.lazy import lazy_names

TYPE_CHECKING = False  # `typing` takes long to load

_NAMES = """
recollect.archive: html
recollect.archive.documents: FORMATS digest_if_evicted digest_name document_name render write_named write_new
recollect.archive.html: Exchange Step SubAgent diffs_by_event files_changed patches read_exchanges require_web_parts
recollect.archive.wording: compact
"""
if TYPE_CHECKING:
    from recollect.archive import html
    from recollect.archive.documents import (
        FORMATS,
        digest_if_evicted,
        digest_name,
        document_name,
        render,
        write_named,
        write_new,
    )
    from recollect.archive.html import (
        Exchange,
        Step,
        SubAgent,
        diffs_by_event,
        files_changed,
        patches,
        read_exchanges,
        require_web_parts,
    )
    from recollect.archive.wording import compact

else:
    __getattr__ = lazy_names(__name__, _NAMES)
