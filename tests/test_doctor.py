"""The doctor: a row for everything, each state with its fix, never a traceback."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import course_lib
from course_lib import devices, nvrtc, ptxas

doctor = importlib.import_module("course_lib.doctor")

NAMES = [
    "Python", "CuPy", "NVRTC", "CUDA headers", "ptxas", "GPU", "virtual GPU", "sandbox", "cache",
]  # fmt: skip


@pytest.fixture(scope="module")
def report():
    return course_lib.doctor()


def test_every_row_is_there_and_what_is_not_ok_has_a_fix(report):
    assert [row.name for row in report.rows] == NAMES
    for row in report.rows:
        assert row.state in ("ok", "warn", "problem") and row.value
        assert bool(row.fix) == (row.state != "ok"), row


def test_this_machine_can_run_the_course(report):
    assert report.ok, str(report)
    assert report["NVRTC"].value.startswith(f"{nvrtc.version()[0]}.")


def test_it_reads_well_in_a_terminal_and_in_a_notebook(report):
    assert report.verdict in str(report)
    assert report._repr_html_().count("<tr>") == len(NAMES) + 1


def test_the_module_and_the_function_share_a_name():
    assert type(course_lib.doctor()).__name__ == "Report"
    assert type(doctor()).__name__ == "Report"


def test_the_command():
    ran = subprocess.run(
        [sys.executable, "-m", "course_lib.doctor"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "NVRTC" in ran.stdout and not ran.stderr


def old_driver(monkeypatch, version):
    gpu = devices.Gpu("A100", (8, 0), 108, 1410, 163 << 10, 164 << 10, 65536, 1, 1, version)
    monkeypatch.setattr(devices, "gpu", lambda: gpu)
    monkeypatch.setattr(devices, "driver_version", lambda: version)


def test_a_driver_of_an_older_major_version(monkeypatch):
    old_driver(monkeypatch, (12, 4))
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 5))
    monkeypatch.setattr(ptxas, "version", lambda path=None: (13, 5))
    assert doctor._nvrtc().state == "problem" and "CUDA 12" in doctor._nvrtc().fix
    assert doctor._ptxas().state == "problem" and "12.4" in doctor._ptxas().value


def test_a_driver_of_an_older_minor_version_is_fine(monkeypatch):
    old_driver(monkeypatch, (13, 0))
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 5))
    assert doctor._nvrtc().state == "ok" and "bridge" in doctor._nvrtc().value
    assert doctor._gpu().state == "warn" and "163 KB" in doctor._gpu().value


def test_a_ptxas_that_is_too_old(monkeypatch):
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 5))
    monkeypatch.setattr(ptxas, "version", lambda path=None: (12, 0))
    monkeypatch.setattr(doctor, "_fit", lambda: "Unsupported .version 9.5")
    assert doctor._ptxas().state == "problem" and "nvidia-cuda-nvcc" in doctor._ptxas().fix


def test_missing_things(monkeypatch, tmp_path):
    monkeypatch.setattr(ptxas, "find", lambda: None)
    assert "nvidia-cuda-nvcc" in doctor._ptxas().fix
    monkeypatch.setattr(nvrtc, "include_folders", lambda: ("own", str(tmp_path)))
    assert "nvidia-cuda-cccl" in doctor._headers().fix
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COURSE_LIB_CACHE", str(tmp_path / "file" / "cache"))
    assert doctor._cache().state == "warn"
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    assert "bubblewrap" in doctor._sandbox().fix


def test_a_check_that_fails_is_a_row(monkeypatch):
    def broken():
        raise RuntimeError("no such thing")

    monkeypatch.setattr(doctor, "_CHECKS", (("Python", broken),))
    assert "no such thing" in doctor.doctor()["Python"].value
