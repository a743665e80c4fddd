"""Compiling and assembling, each kept by content: in memory, and on disk for the next notebook."""

from __future__ import annotations

import base64
import functools
import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from course_lib import disk_cache, nvrtc, ptxas
from course_lib.diagnostics import Diagnostic
from course_lib.ptxas import Resources

if TYPE_CHECKING:
    from course_lib.ptx.parse import Module

CACHE_FORMAT = 6
"""Part of every key: raise it when what is stored changes its meaning."""

_lock = threading.Lock()
_memory: dict[str, Any] = {}


def _remember(key: str, value: Any) -> Any:
    with _lock:
        if len(_memory) > 500:
            _memory.clear()
        _memory[key] = value
    return value


@functools.lru_cache(maxsize=1)
def toolchain() -> tuple[str, ...]:
    """What decides the compilers' output besides their input: part of every cache key."""
    from importlib import metadata

    versions = []
    packages = ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-cccl", "nvidia-cuda-nvcc")
    for package in packages:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{package} none")
    if versions[0].endswith("none"):  # a toolkit's NVRTC: only loading it tells its version
        versions.append(f"nvrtc {nvrtc.version()}")
    versions += [str(ptxas.find()), *nvrtc.include_folders()]
    headers = sorted(nvrtc.INCLUDE_FOLDER.rglob("*"))
    versions += [f"{h.name} {disk_cache.key_of(h.read_bytes())}" for h in headers if h.is_file()]
    return tuple(versions)


def compiled(
    source: str, defines: Mapping[str, object], options: tuple[str, ...], arch: str
) -> nvrtc.Compiled:
    """PTX of a source, from the cache where it was compiled before. Raises CompileError."""
    flags = nvrtc.define_options(defines)
    key = disk_cache.key_of(CACHE_FORMAT, toolchain(), source, flags, options, arch)
    if key in _memory:
        return _memory[key]
    # Headers of a learner's own folder may change without the source changing.
    own_headers = any(option.startswith(("-I", "--include-path")) for option in options)
    entry = None if own_headers else disk_cache.load("ptx", key)
    if entry is not None:
        warnings = tuple(Diagnostic(**warning) for warning in entry["warnings"])
        return _remember(key, nvrtc.Compiled(entry["ptx"], warnings))
    made = nvrtc.compile_source(source, defines=defines, options=options, arch=arch)
    if own_headers:
        return made
    warnings_plain = [asdict(warning) for warning in made.warnings]
    disk_cache.store("ptx", key, {"ptx": made.ptx, "warnings": warnings_plain})
    return _remember(key, made)


def assembled(ptx: str, arch: str) -> ptxas.Assembled:
    """Cubin and resources of a PTX text, cached. Raises CompileError or NoAssembler."""
    key = disk_cache.key_of(CACHE_FORMAT, toolchain(), ptx, arch)
    if key in _memory:
        return _memory[key]
    entry = disk_cache.load("cubin", key)
    if entry is not None:
        kernels = {
            name: Resources(**{**values, "advisories": tuple(values["advisories"])})
            for name, values in entry["kernels"].items()
        }
        return _remember(key, ptxas.Assembled(base64.b64decode(entry["cubin"]), kernels))
    made = ptxas.assemble(ptx, arch)
    disk_cache.store(
        "cubin",
        key,
        {
            "cubin": base64.b64encode(made.cubin).decode(),
            "kernels": {name: asdict(found) for name, found in made.kernels.items()},
        },
    )
    return _remember(key, made)


@functools.lru_cache(maxsize=64)
def parsed(ptx: str) -> Module:
    """The PTX as typed instructions; the last 64 texts are kept in memory."""
    from course_lib.ptx.parse import parse

    return parse(ptx)
