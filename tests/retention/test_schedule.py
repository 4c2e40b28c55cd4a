"""What is installed so that sweeps run by themselves, for each system, and that it goes again."""

import plistlib
import stat
from pathlib import Path

import pytest

from recollect.care.schedule import (
    CRON,
    LAUNCHD,
    SYSTEMD,
    WATCH,
    Host,
    Schedule,
    install_schedule,
    plan_schedule,
    remove_schedule,
)
from recollect.model.errors import StoreUnwritable, UsageError

COMMAND = ("/opt/my tools/python", "-m", "recollect", "sweep")
VARIABLES = {"RECOLLECT_HOME": "/data/50% full"}


def planned(tmp_path: Path, platform: str = "linux", *, systemd: bool = False, cadence: str = "daily") -> Schedule:
    host = Host(platform, tmp_path, tmp_path / ".config", systemd, tmp_path / "store" / "50%.log")
    return plan_schedule(host, cadence, COMMAND, VARIABLES)


def test_a_line_of_a_crontab_is_quoted_for_it(tmp_path: Path) -> None:
    found = planned(tmp_path)

    assert found.kind == CRON
    line = found.cron_line or ""
    assert line.startswith("17 3 * * * RECOLLECT_HOME='/data/50\\% full' '/opt/my tools/python' -m recollect sweep")
    assert r"/store/50\%.log 2>&1" in line
    assert planned(tmp_path, cadence="weekly").cron_line != line


def test_a_timer_of_systemd_runs_what_was_missed(tmp_path: Path) -> None:
    found = planned(tmp_path, systemd=True, cadence="weekly")

    assert found.kind == SYSTEMD
    service, timer = found.files.values()
    assert 'ExecStart="/opt/my tools/python" "-m" "recollect" "sweep"' in service
    assert 'Environment="RECOLLECT_HOME=/data/50%% full"' in service
    assert f"StandardOutput=truncate:{tmp_path}/store/50%%.log" in service
    assert "OnCalendar=weekly" in timer
    assert "Persistent=true" in timer


def test_an_agent_of_launchd_is_a_property_list(tmp_path: Path) -> None:
    found = planned(tmp_path, "darwin")

    assert found.kind == LAUNCHD
    ((path, content),) = found.files.items()
    told = plistlib.loads(content.encode())
    assert path.name == f"{told['Label']}.plist"
    assert told["ProgramArguments"] == list(COMMAND)
    assert told["EnvironmentVariables"] == VARIABLES
    assert told["StandardOutPath"] == str(tmp_path / "store" / "50%.log")


def test_the_watcher_is_a_service_that_is_started_again(tmp_path: Path) -> None:
    cron, unit, agent = (
        planned(tmp_path, cadence=WATCH),
        planned(tmp_path, systemd=True, cadence=WATCH),
        planned(tmp_path, "darwin", cadence=WATCH),
    )

    assert (cron.cron_line or "").startswith("@reboot ")
    ((path, service),) = unit.files.items()
    assert "Restart=on-failure" in service
    assert "WantedBy=default.target" in service
    assert ("systemctl", "--user", "enable", "--now", path.name) in unit.on
    assert plistlib.loads(next(iter(agent.files.values())).encode())["RunAtLoad"] is True


def test_the_watcher_replaces_a_timer_that_was_installed(programs: Path) -> None:
    install_schedule(planned(programs, systemd=True))
    install_schedule(planned(programs, systemd=True, cadence=WATCH))

    units = sorted(path.name for path in (programs / ".config/systemd/user").iterdir())

    assert units == ["recollect.service"]


def test_what_agents_begin_needs_no_clock(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="on-hook"):
        planned(tmp_path, cadence="on-hook")


@pytest.mark.parametrize("system", ["linux", "darwin"])
@pytest.mark.parametrize("folder", ["/srv/x\n* * * * * touch /tmp/planted #", "/srv/x\rExecStart=/bin/sh"])
def test_a_folder_whose_name_would_add_a_line_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, folder: str
) -> None:
    monkeypatch.setitem(VARIABLES, "RECOLLECT_HOME", folder)

    with pytest.raises(UsageError, match="not printable"):
        planned(tmp_path, system)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A crontab and a systemctl of our own, which do as the real ones do."""
    folder = tmp_path / "bin"
    folder.mkdir()
    table, log = tmp_path / "table", tmp_path / "log"
    scripts = {
        "crontab": f'if [ "$1" = -l ]; then cat "{table}" 2>/dev/null || {{ echo "no crontab for me" >&2; exit 1; }};'
        f' else cat > "{table}"; fi',
        "systemctl": f'echo "$@" >> "{log}"',
    }
    for name, script in scripts.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return tmp_path


def test_our_line_of_the_crontab_comes_once_and_goes_alone(programs: Path) -> None:
    (programs / "table").write_text("0 1 * * * backup\n")
    found = planned(programs)

    install_schedule(found)
    install_schedule(planned(programs, cadence="weekly"))
    assert len((programs / "table").read_text().splitlines()) == 2
    assert remove_schedule(found) is True

    assert (programs / "table").read_text() == "0 1 * * * backup\n"
    assert remove_schedule(found) is False


def test_a_crontab_that_cannot_be_read_is_not_written(programs: Path) -> None:
    crontab = programs / "bin" / "crontab"
    crontab.write_text(f'#!/bin/sh\nif [ "$1" = -l ]; then echo busy >&2; exit 1; fi; cat > "{programs / "table"}"\n')

    with pytest.raises(StoreUnwritable, match="busy"):
        install_schedule(planned(programs))

    assert not (programs / "table").exists()


def test_a_crontab_that_is_not_accepted_is_one_clear_line(programs: Path) -> None:
    (programs / "bin" / "crontab").write_text('#!/bin/sh\n[ "$1" = -l ] && exit 0\necho not allowed >&2; exit 1\n')

    with pytest.raises(StoreUnwritable, match="not allowed"):
        install_schedule(planned(programs))


def test_a_variable_of_a_unit_is_taken_as_it_is(tmp_path: Path) -> None:
    host = Host("linux", tmp_path, tmp_path, True, tmp_path / "log")
    (service, _) = plan_schedule(host, "daily", ("/bin/a$b",), {"RECOLLECT_HOME": "/x/a$b"}).files.values()

    assert 'Environment="RECOLLECT_HOME=/x/a$b"\n' in service
    assert 'ExecStart="/bin/a$$b"\n' in service


def test_units_are_written_switched_on_and_taken_away(programs: Path) -> None:
    found = planned(programs, systemd=True)

    install_schedule(found)
    assert all(path.read_text() == content for path, content in found.files.items())
    assert "enable --now recollect.timer" in (programs / "log").read_text()
    assert remove_schedule(found) is True

    assert not any(path.exists() for path in found.files)
    assert "disable --now recollect.timer" in (programs / "log").read_text()
    assert remove_schedule(found) is False


def test_a_scheduler_that_is_not_there_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(StoreUnwritable, match="crontab"):
        install_schedule(planned(tmp_path))
    with pytest.raises(StoreUnwritable, match="systemctl"):
        install_schedule(planned(tmp_path, systemd=True))
