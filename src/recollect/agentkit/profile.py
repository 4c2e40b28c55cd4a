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
    ids_begin_with_time: bool = False  # so that the ids of one day begin alike, and are told apart by their ends
    resume_command: tuple[str, ...] = ()  # continues a session in its folder; `{id}` is its native id
    settings_advice: tuple[SettingAdvice, ...] = ()
