"""The library behind every interface: the command line, and whatever else shows or changes a memory, calls this.

Names load on first use: a search must not wait for the code of a sweep, a repair or a restore. Modules of this package
reach what few calls need the same way, through the doors of the packages below.
"""

from recollect.lazy import lazy_names

TYPE_CHECKING = False  # `typing` takes long to load
if TYPE_CHECKING:
    from recollect.api.annotations import VIEW_FIELDS, Annotations, ForgetRequest, SessionAnnotations, UserNote
    from recollect.api.archives import Archive, Archives, DigestPages
    from recollect.api.care import (
        CheckedText,
        check_text,
        doctor,
        make_room,
        plan_schedule,
        repair,
        rescue,
        restore,
        watch,
    )
    from recollect.api.graphs import Graphs
    from recollect.api.groups import Forked, Groups, Prompting
    from recollect.api.handover import Handover, HandoverPlan
    from recollect.api.installs import installer
    from recollect.api.knowledge import Knowledge
    from recollect.api.memory import Memory, open_memory
    from recollect.api.naming import find_last, find_named, resumable
    from recollect.api.settings import change_setting, settings_in_force
    from recollect.api.tracking import Projects, Tracking
    from recollect.api.tracking_config import import_tracking_config
    from recollect.recall import Filters
else:
    __getattr__ = lazy_names(__name__, __file__)
