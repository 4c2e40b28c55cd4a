"""What front ends know of an agent. Apart from the contract, because a search needs only this of an agent."""

from typing import NamedTuple


class SettingAdvice(NamedTuple):
    """A setting in an agent's JSON settings file that makes it delete its own logs."""

    path: str
    key: str
    default: int
    at_least: int
    advice: str


class AgentProfile(NamedTuple):
    """What front ends need to know of an agent, so that none of them names one."""

    display_name: str
    session_variable: str | None = None  # environment variable that holds the current session's id
    session_meta_key: str | None = None  # of MCP's `_meta` on each call, if that names the current session
    ids_begin_with_time: bool = False  # so that the ids of one day begin alike, and are told apart by their ends
    start_command: tuple[str, ...] = ()  # begins a session; `{prompt}` is the first prompt
    resume_command: tuple[str, ...] = ()  # continues a session in its folder; `{id}` is its native id
    fork_command: tuple[str, ...] = ()  # continues a copy of it, which leaves the session as it is
    instructions_file: str = "AGENTS.md"  # of a project, read at the start of a session
    sdk_module: str | None = None  # reads what the agent's SDK hands over to a session store
    tone: int | None = None  # which of the page's eight colours is its own
    settings_advice: tuple[SettingAdvice, ...] = ()
