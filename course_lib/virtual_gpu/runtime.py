"""The compiled runtime as one object file: made once at set-up, loaded in milliseconds after that.

numba compiles the scheduler, the copies and the clock. Importing numba alone takes longer than a
learner should wait for a first launch, so their machine code is kept on disk by content, and a
launch needs llvmlite only. Any change of the runtime's source, of llvmlite or of the processor
makes another file.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_lib import disk_cache
from course_lib.virtual_gpu.abi import RUNTIME_FUNCTIONS

SOURCES = (
    "abi", "records", "raw", "scheduler", "barriers", "collectives", "copies", "clock", "notes",
    "shared_unit", "shadow", "vector_clocks", "happens_before", "global_accesses", "ordering_words",
    "mbarriers", "bulk_copies", "phase_waits",
    "matrix_math", "tensor_cores", "wgmma",
    "runtime",
)  # fmt: skip
"""Modules whose text decides the object's content."""

RUN_CORE = "run_core"
CALLED_BACK = ("rt_printf",)
"""Functions of RUNTIME_FUNCTIONS that Python supplies."""

_lock = threading.Lock()


class Runtime:
    """The loaded object: addresses of what translated code calls, and `run_core`."""

    def __init__(self, engine: Any, addresses: dict[str, int]) -> None:
        self._engine = engine  # the machine code lives as long as this does
        self.addresses = addresses
        prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
        self.run_core: Callable[[int], int] = prototype(addresses[RUN_CORE])


@functools.lru_cache(maxsize=1)
def _loaded() -> Runtime:
    with _lock:
        path = object_path()
        code = path.read_bytes() if path.exists() else build()
        return _load(code)


def load() -> Runtime:
    """The runtime, compiled first (several seconds) where set-up has not done so."""
    return _loaded()


def native_target() -> Any:
    """llvmlite's target machine for this processor; initialises LLVM."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        jit=True,
    )


def object_path() -> Path:
    """Where this version of the runtime lies, or would lie, on this machine."""
    import llvmlite
    import llvmlite.binding as llvm

    folder = Path(__file__).parent
    texts = tuple((folder / f"{name}.py").read_bytes() for name in SOURCES)
    processor = (llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    key = disk_cache.key_of(llvmlite.__version__, *processor, *texts)
    return disk_cache.folder() / "runtime" / f"{key}.o"


def build() -> bytes:
    """Compile the runtime with numba and keep it on disk; returns the object file."""
    code = _compile()
    path = object_path()
    # A folder that cannot be written to costs the cache and nothing else.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(code)
        os.replace(file.name, path)
    return code


def _functions() -> dict[str, tuple[Any, int]]:
    """Entry points with their number of 64-bit arguments."""
    from course_lib.virtual_gpu import (
        bulk_copies,
        clock,
        copies,
        global_accesses,
        happens_before,
        mbarriers,
        notes,
        ordering_words,
        scheduler,
        wgmma,
    )

    homes = (
        copies, mbarriers, bulk_copies, notes, clock, happens_before, global_accesses,
        ordering_words, wgmma,
    )  # fmt: skip

    found: dict[str, tuple[Any, int]] = {RUN_CORE: (scheduler.run_core, 1)}
    for name, (_, extra) in RUNTIME_FUNCTIONS.items():
        if name not in CALLED_BACK:
            home = next(m for m in homes if hasattr(m, name))
            found[name] = (getattr(home, name), extra + 2)
    return found


def _compile() -> bytes:
    import llvmlite.binding as llvm
    from numba import types

    machine = native_target()
    linked = llvm.parse_assembly("")
    wrappers = []
    for name, (function, count) in _functions().items():
        signature = (types.int64,) * count
        function.compile(signature)
        compiled = function.overloads[signature]
        linked.link_in(llvm.parse_assembly(compiled.library.get_llvm_str()))
        wrappers.append(_wrapper(name, compiled.fndesc.llvm_func_name, count))
    linked.link_in(llvm.parse_assembly("\n".join(wrappers)))
    for function in linked.functions:
        if not function.is_declaration and function.name not in _functions():
            function.linkage = "internal"
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    llvm.create_pass_builder(machine, options).getModulePassManager().run(
        linked, llvm.create_pass_builder(machine, options)
    )
    return machine.emit_object(linked)


def _wrapper(name: str, mangled: str, count: int) -> str:
    """A plain C function around one of numba's, which returns its value through a pointer."""
    arguments = ", ".join(f"i64 %a{k}" for k in range(count))
    kinds = ", ".join(["ptr", "ptr", *["i64"] * count])
    return f"""
declare i32 @"{mangled}"({kinds})
define i64 @{name}({arguments}) {{
  %result = alloca i64
  %exception = alloca ptr
  call i32 @"{mangled}"(ptr %result, ptr %exception, {arguments})
  %value = load i64, ptr %result
  ret i64 %value
}}
"""


def _load(code: bytes) -> Runtime:
    import llvmlite.binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), native_target())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    names = [name for name in RUNTIME_FUNCTIONS if name not in CALLED_BACK]
    addresses = {name: engine.get_function_address(name) for name in [RUN_CORE, *names]}
    missing = [name for name, address in addresses.items() if not address]
    if missing:
        raise RuntimeError(f"the compiled runtime lacks {', '.join(missing)}: run make setup again")
    return Runtime(engine, addresses)
