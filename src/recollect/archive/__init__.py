"""Sessions as documents: Markdown and HTML to read and share, JSON with everything, digests as a folder of pages."""

from recollect.lazy import lazy_names

TYPE_CHECKING = False  # `typing` takes long to load
if TYPE_CHECKING:
    from recollect.archive import html
    from recollect.archive.documents import FORMATS, Detail, render
    from recollect.archive.files import digest_name, document_name, write_named, write_new
    from recollect.archive.html import diffs_by_event, files_changed, require_web_parts
    from recollect.archive.reading import Exchange, Step, SubAgent, read_exchanges
    from recollect.archive.wording import compact
else:
    __getattr__ = lazy_names(__name__, __file__)
