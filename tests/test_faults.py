"""A run that is struck by a fault ends with the same numbers when the same command is given again."""

import errno
import os
import signal
import sys

import faults
import pytest

from glasshouse import cli


@pytest.fixture(scope="module")
def striker(tmp_path_factory):
    return faults.Striker(tmp_path_factory.mktemp("faults"))


def struck(striker, *kinds):
    while True:
        try:
            return striker.strike(*kinds)
        except faults.Missed:
            continue


def test_a_run_that_is_killed_then_terminated_and_then_loses_a_worker_ends_with_the_same(striker):
    assert struck(striker, "SIGKILL", "SIGTERM", "killed worker").wrong == []


@pytest.mark.skipif(not faults.disk_can_be_filled(), reason="this machine mounts no small disk for us")
def test_a_run_that_filled_its_disk_ends_with_the_same_when_there_is_space(striker):
    assert struck(striker, "full disk").wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", faults.KINDS)
def test_a_fault_at_any_of_twenty_moments_changes_no_number(striker, kind):
    if kind == "full disk" and not faults.disk_can_be_filled():
        pytest.skip("this machine mounts no small disk for us")
    assert [complaint for outcome in striker.strikes(kind, 20) for complaint in outcome.wrong] == []


def sent(number):
    os.kill(os.getpid(), number)


def sent_while_importing(number):
    """The signal, as it comes out of a package written in C that was being imported."""
    try:
        os.kill(os.getpid(), number)
    except KeyboardInterrupt:
        raise ImportError("initialization failed") from None


@pytest.mark.parametrize("strike", [sent, sent_while_importing])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("name", ["audit", "study"])
def test_an_interruption_says_how_to_go_on(name, number, strike, monkeypatch, capsys):
    before = signal.getsignal(number)
    monkeypatch.setattr(f"glasshouse.api.{name}", lambda *_, **__: strike(number))
    monkeypatch.setattr(sys, "argv", ["glasshouse", name, *(["clients"] if name == "study" else [])])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 128 + number
    assert capsys.readouterr().err.strip() == faults.CONTINUES
    assert signal.getsignal(number) is before


def test_a_full_disk_is_one_line_wherever_it_shows(monkeypatch, capsys):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("glasshouse.api.audit", fail)
    monkeypatch.setattr(sys, "argv", ["glasshouse", "audit", "-q"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.count("\n") == 1
    assert "the same command goes on where it stopped" in said
