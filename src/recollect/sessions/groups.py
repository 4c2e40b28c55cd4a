"""Which group a session belongs to: by the agent's home it was found in, else by the folder it worked in."""

from collections.abc import Mapping
from pathlib import Path

from recollect.agents import adapters
from recollect.kinds import SessionKey
from recollect.store import MAIN_GROUP, GroupRow, Store, path_key

GROUPS_FOLDER = "groups"
_DEEPEST = 32  # logs may name two sessions as each other's base


def group_folder(store_folder: Path, name: str) -> Path:
    """Where the store keeps what belongs to a group: the homes of its agents, its IPC folder."""
    return store_folder / GROUPS_FOLDER / name


def homes_of(store_folder: Path, group: GroupRow) -> dict[str, Path]:
    """The home of each agent in a group: as it was given, else one in the group's folder of the store."""
    folder = group_folder(store_folder, group.name)
    homes = {agent: folder / Path(adapter.home).name for agent, adapter in adapters().items()}
    return homes | ({group.agent: Path(group.home)} if group.home else {})


def with_group_homes(store: Store, roots: Mapping[str, tuple[Path, ...]]) -> dict[str, tuple[Path, ...]]:
    """The agents' homes that a sweep reads, those of the groups included as far as they exist."""
    homes = dict(roots)
    groups = {group.name: group for group in store.groups.all()}
    if not groups and not (store.folder / GROUPS_FOLDER).exists():
        return homes  # most stores have none, and looking at every agent's home takes longer than a sweep without news
    main = GroupRow(MAIN_GROUP, "", "", None, 0)
    for group in ({MAIN_GROUP: main} | groups).values():
        for agent, home in homes_of(store.folder, group).items():
            if agent in homes and home not in homes[agent] and home.is_dir():
                homes[agent] = (*homes[agent], home)
    return homes


def assign_groups(store: Store) -> int:
    """Put every session into its group, and return how many changed theirs.

    Sub-agents and forks belong where the session they come from does.
    """
    groups = store.groups.all()
    if not groups and not store.session_rows.has_groups():
        return 0
    members = store.session_rows.places()
    by_home = _by_home(store, groups)
    own = {
        member.session_uid: by_home.get(member.session) or _by_path(groups, member.cwd)
        if member.key is None
        else member.group
        for member in members
    }
    above = {}
    for member in members:
        uid, root = member.session_uid, member.root_session_uid
        above[uid] = root if root != uid else member.base_session_uid
    changes = {}
    for member in members:
        group = own[_origin(member.session_uid, above)]
        if group != member.group:
            changes[member.session] = (group,)
    store.session_rows.set(("group",), changes)
    return len(changes)


def _origin(uid: str, above: Mapping[str, str | None]) -> str:
    """The session that this one comes from in the end, of those that are stored."""
    for _ in range(_DEEPEST):
        source = above[uid]
        if source is None or source not in above:
            break
        uid = source
    return uid


def _by_home(store: Store, groups: list[GroupRow]) -> dict[SessionKey, str]:
    # Sweeps read a home where a link to it leads.
    homes = [
        (path_key(home.resolve()), group.name) for group in groups for home in homes_of(store.folder, group).values()
    ]
    homes.sort(key=lambda home: len(home[0]))  # of homes within homes the inner one counts
    return {key: name for home, name in homes for key in store.session_rows.below(home)}


def _by_path(groups: list[GroupRow], cwd: str | None) -> str:
    inside = [group for group in groups if cwd and Path(cwd).is_relative_to(group.path)]
    return max(inside, key=lambda group: len(group.path)).name if inside else MAIN_GROUP
