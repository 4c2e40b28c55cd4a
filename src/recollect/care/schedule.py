"""Running a sweep by itself: the files and commands for the scheduler of each system, made here and shown first."""

import plistlib
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.model.errors import StoreUnwritable, UsageError

CRON, SYSTEMD, LAUNCHD = "cron", "systemd", "launchd"
WATCH = "watch"  # instead of a cadence: a service that runs all the time
LOG_NAME = "schedule.log"
_UNITS = ("service", "timer")
_MARK = "# recollect sweep"  # ends our line of a crontab
_LABEL = "io.recollect.sweep"
_CRON_TIMES = {"daily": "17 3 * * *", "weekly": "17 3 * * 1", WATCH: "@reboot"}
_LAUNCHD_TIMES: dict[str, dict[str, Any]] = {
    "daily": {"StartCalendarInterval": {"Hour": 3, "Minute": 17}},
    "weekly": {"StartCalendarInterval": {"Weekday": 1, "Hour": 3, "Minute": 17}},
    WATCH: {"RunAtLoad": True, "KeepAlive": {"SuccessfulExit": False}},
}


@dataclass(frozen=True, slots=True)
class Host:
    """What decides which scheduler is used, and where its files lie."""

    platform: str  # as sys.platform
    home: Path
    config_home: Path
    has_systemd: bool
    log_path: Path  # keeps what the last scheduled sweep printed; `doctor` shows it


@dataclass(frozen=True, slots=True)
class Schedule:
    """What installing does: files that are written, a line for the crontab, commands that are run then.

    Removing deletes `paths`, whichever of them there are.
    """

    kind: str
    files: Mapping[Path, str] = field(default_factory=dict)
    cron_line: str | None = None
    on: tuple[tuple[str, ...], ...] = ()
    off: tuple[tuple[str, ...], ...] = ()
    log_path: Path | None = None
    paths: tuple[Path, ...] = ()

    def to_json(self) -> dict[str, Any]:
        files = {str(path): content for path, content in self.files.items()}
        return {"kind": self.kind, "files": files, "cron_line": self.cron_line, "commands": list(map(list, self.on))}


def plan_schedule(host: Host, cadence: str, command: Sequence[str], variables: Mapping[str, str]) -> Schedule:
    """The schedule for a machine: of a sweep, or with WATCH of the watcher. Raises UsageError if there is none to make.

    Its files and names are the same for every cadence.
    """
    if cadence not in _CRON_TIMES:
        raise UsageError(
            f"Nothing to schedule: with cadence `{cadence}` your agents start sweeps",
            'set retention.cadence to "daily" or "weekly"',
        )
    for text in (*command, *variables.values()):
        if not text.isprintable():  # a line break would begin another line of the scheduler's file
            raise UsageError(f"Cannot schedule, not printable: {text!r}", "rename the folder")
    if host.platform == "darwin":
        return _launchd(host, cadence, command, variables)
    if host.platform.startswith("linux") and host.has_systemd:
        return _systemd(host, cadence, command, variables)
    return _cron(host, cadence, command, variables)


def _cron(host: Host, cadence: str, command: Sequence[str], variables: Mapping[str, str]) -> Schedule:
    words = [*(f"{name}={shlex.quote(value)}" for name, value in variables.items()), shlex.join(command)]
    line = f"{_CRON_TIMES[cadence]} {' '.join(words)} >{shlex.quote(str(host.log_path))} 2>&1"
    return Schedule(CRON, cron_line=f"{line.replace('%', chr(92) + '%')} {_MARK}", log_path=host.log_path)


def _systemd(host: Host, cadence: str, command: Sequence[str], variables: Mapping[str, str]) -> Schedule:
    service_path, timer_path = (host.config_home / "systemd" / "user" / f"recollect.{kind}" for kind in _UNITS)
    settings = "".join(f"Environment={_unit_text(f'{name}={value}')}\n" for name, value in variables.items())
    is_watch = cadence == WATCH
    kind = "Type=simple\nRestart=on-failure\nRestartSec=30" if is_watch else "Type=oneshot"
    service = (
        f"[Unit]\nDescription=Read new agent sessions (Recollect)\n\n[Service]\n{kind}\nNice=10\n"
        f"{settings}ExecStart={' '.join(_unit_text(word.replace('$', '$$')) for word in command)}\n"
        f"StandardOutput=truncate:{str(host.log_path).replace('%', '%%')}\nStandardError=inherit\n"
    )
    timer = (
        f"[Unit]\nDescription=Scheduled Recollect sweep\n\n[Timer]\nOnCalendar={cadence}\nPersistent=true\n"
        "RandomizedDelaySec=15min\n\n[Install]\nWantedBy=timers.target\n"
    )
    systemctl = ("systemctl", "--user")
    started = service_path if is_watch else timer_path
    return Schedule(
        SYSTEMD,
        {service_path: f"{service}\n[Install]\nWantedBy=default.target\n"}
        if is_watch
        else {service_path: service, timer_path: timer},
        on=((*systemctl, "daemon-reload"), (*systemctl, "enable", "--now", started.name)),
        off=((*systemctl, "disable", "--now", timer_path.name), (*systemctl, "disable", "--now", service_path.name)),
        log_path=host.log_path,
        paths=(service_path, timer_path),
    )


def _unit_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _launchd(host: Host, cadence: str, command: Sequence[str], variables: Mapping[str, str]) -> Schedule:
    path = host.home / "Library" / "LaunchAgents" / f"{_LABEL}.plist"
    settings = {
        "Label": _LABEL,
        "ProgramArguments": list(command),
        "EnvironmentVariables": dict(variables),
        **_LAUNCHD_TIMES[cadence],
        "LowPriorityIO": True,
        "StandardOutPath": str(host.log_path),
        "StandardErrorPath": str(host.log_path),
    }
    return Schedule(
        LAUNCHD,
        {path: plistlib.dumps(settings).decode()},
        on=(("launchctl", "load", "-w", str(path)),),
        off=(("launchctl", "unload", "-w", str(path)),),
        log_path=host.log_path,
        paths=(path,),
    )


def install_schedule(schedule: Schedule) -> None:
    """Write the files or the line in place of an earlier schedule, then switch it on."""
    remove_schedule(schedule)
    if schedule.log_path is not None:
        schedule.log_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, content in schedule.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    if schedule.cron_line is not None:
        _set_cron_lines([*_cron_lines(), schedule.cron_line])
    for command in schedule.on:
        done = _done(command)
        if done.returncode:
            raise _failed(done, "the files are written; run the command yourself")


def remove_schedule(schedule: Schedule) -> bool:
    """Switch it off and delete what `install` wrote; says whether there was anything."""
    if schedule.cron_line is not None:
        lines = _cron_lines()
        others = [line for line in lines if not line.endswith(_MARK)]
        if others != lines:
            _set_cron_lines(others)
        return others != lines
    is_there = any(path.exists() for path in schedule.paths)
    for command in schedule.off if is_there else ():
        _done(command)
    for path in schedule.paths:
        path.unlink(missing_ok=True)
    return is_there


def _cron_lines() -> list[str]:
    done = _done(("crontab", "-l"))
    if done.returncode and "no crontab" not in done.stderr:  # what cannot be read must not be written anew
        raise _failed(done, "nothing was changed; or run `recollect sweep` from another scheduler")
    return done.stdout.splitlines() if done.returncode == 0 else []


def _set_cron_lines(lines: Sequence[str]) -> None:
    done = _done(("crontab", "-"), "".join(f"{line}\n" for line in lines))
    if done.returncode:
        raise _failed(done, "nothing was changed")


def _done(command: Sequence[str], given: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, "", "no such program")


def _failed(done: subprocess.CompletedProcess[str], hint: str) -> StoreUnwritable:
    return StoreUnwritable(f"`{shlex.join(done.args)}` failed: {' '.join(done.stderr.split())}", hint)
