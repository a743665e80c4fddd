"""Compiles translated kernels to machine code, and keeps the result on disk.

Only the functions of the run-time (``register``) and a few of libm may be called from it: a kernel
that would need another symbol is refused by name, because an unresolved call would end the process.
"""

from __future__ import annotations

import base64
import ctypes
import functools
import itertools
import re
import struct
import threading
from dataclasses import dataclass, field
from typing import Any

from course_lib import disk_cache
from course_lib.ptx.parse import Instruction, Module
from course_lib.virtual_gpu import abi
from course_lib.virtual_gpu.emit.kernel import prepare, translate
from course_lib.virtual_gpu.flow import FlatKernel, Parameter, Unsupported

#: Functions that the code generator calls where the processor has no instruction.
LIBRARY = (
    "sinf", "cosf", "exp2f", "log2f", "tanhf", "fmaf", "fma", "fmodf", "fmod", "floorf", "floor",
    "ceilf", "ceil", "truncf", "trunc", "rintf", "rint", "roundevenf", "roundeven", "fminf", "fmin",
    "fmaxf", "fmax", "memcpy", "memset", "memmove",
)  # fmt: skip
#: Changes with anything here that alters the machine code of the same IR.
PIPELINE = 1

_addresses: dict[str, int] = {}
_lock = threading.RLock()
_names = itertools.count()


def register(name: str, address: int) -> None:
    """Tells where a function of ``abi.RUNTIME_FUNCTIONS`` is; before the first ``build``."""
    if name not in abi.RUNTIME_FUNCTIONS:
        raise ValueError(f"{name} is not a function of the run-time")
    _addresses[name] = address


@dataclass(slots=True)
class CompiledKernel:
    """Machine code of one kernel with all that a launch must know; sizes in bytes."""

    name: str
    module: Module
    flat: FlatKernel = field(repr=False)
    _steps: dict[tuple[bool, int], tuple[int, int, Any]] = field(default_factory=dict, repr=False)

    def address(self, timed: bool = False, checked: int = 0) -> int:
        """Address of ``step``; compiles this build the first time."""
        return self._step(timed, checked)[0]

    def thread_slots(self, timed: bool = False, checked: int = 0) -> int:
        """Size of a thread record in 64-bit slots."""
        return self._step(timed, checked)[1]

    def _step(self, timed: bool, checked: int) -> tuple[int, int, Any]:
        with _lock:
            if (timed, checked) not in self._steps:
                self._steps[timed, checked] = _compile(self.flat, timed, checked)
            return self._steps[timed, checked]

    def uses(self, opcode: str) -> bool:
        """Has the kernel an instruction of this opcode, or of a longer one?"""
        return any(getattr(item, "opcode", "").startswith(opcode) for item in self.flat.code)

    @property
    def has_wgmma(self) -> bool:
        """Whether a launch needs records of warpgroups."""
        return any(isinstance(i, Instruction) and i.family == "wgmma" for i in self.flat.code)

    @property
    def static_shared(self) -> int:
        return self.flat.static_shared

    @property
    def dynamic_offset(self) -> int:
        """Where dynamic shared memory begins."""
        return self.flat.dynamic_offset

    @property
    def local_bytes(self) -> int:
        return self.flat.local_bytes

    @property
    def parameters(self) -> list[Parameter]:
        return self.flat.parameters

    @property
    def parameter_bytes(self) -> int:
        return self.flat.parameter_bytes

    @property
    def global_data(self) -> bytes:
        """Initial content of the window of module variables."""
        return self.flat.global_data


def build(module: Module, name: str, timed: bool = False, checked: int = 0) -> CompiledKernel:
    """Translates and compiles kernel ``name``.  Raises ``Unsupported`` naming what is missing."""
    try:
        with _lock:
            kernel = CompiledKernel(name, module, prepare(module, name))
            kernel.address(timed, checked)
            return kernel
    except Unsupported as refusal:
        line = module.sites[refusal.site].cell_line
        if line is None:
            raise
        raise Unsupported(f"{refusal.reason} (line {line} of your cell)", refusal.site) from None


def _compile(flat: FlatKernel, timed: bool, checked: int) -> tuple[int, int, Any]:
    translation = translate(flat, timed, checked)
    code = _machine_code(translation.ir)
    _check_symbols(code)
    import llvmlite.binding as llvm

    name = f"kernel_{next(_names)}"
    library = llvm.JITLibraryBuilder().add_object_img(code).export_symbol("step")
    for symbol, address in {**_library_addresses(), **_addresses}.items():
        library.import_symbol(symbol, address)
    tracker = library.link(_engine(), name)
    return tracker["step"], translation.thread_slots, tracker


@functools.lru_cache(maxsize=1)
def _target() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=2,
        jit=True,
    )


@functools.lru_cache(maxsize=1)
def _engine() -> Any:
    import llvmlite.binding as llvm

    return llvm.create_lljit_compiler(_target(), use_jit_link=False)


@functools.lru_cache(maxsize=1)
def _library_addresses() -> dict[str, int]:
    process = ctypes.CDLL(None)
    found = {}
    for name in LIBRARY:
        function = getattr(process, name, None)
        if function is None:
            function = getattr(ctypes.CDLL("libm.so.6"), name, None)
        if function is not None:
            found[name] = ctypes.cast(function, ctypes.c_void_p).value or 0
    return found


def _machine_code(ir: str) -> bytes:
    """Object code of an IR text, from the disk where it was compiled before."""
    import llvmlite
    import llvmlite.binding as llvm

    key = disk_cache.key_of(
        PIPELINE, llvmlite.__version__, llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(), ir,
    )  # fmt: skip
    stored = disk_cache.load("virtual", key)
    if stored is not None:
        return base64.b64decode(stored["object"])
    try:
        module = llvm.parse_assembly(ir)
        module.verify()
    except RuntimeError as error:
        words = " ".join(str(error).split())[:200]
        raise Unsupported(f"this PTX does not translate: {words}") from error
    _optimise(module)
    code = _target().emit_object(module)
    disk_cache.store("virtual", key, {"object": base64.b64encode(code).decode()})
    return code


def _optimise(module: Any) -> None:
    import llvmlite.binding as llvm

    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.loop_unrolling = False
    passes = llvm.create_pass_builder(_target(), options)
    passes.getModulePassManager().run(module, passes)


def _check_symbols(code: bytes) -> None:
    known = {*abi.RUNTIME_FUNCTIONS, *LIBRARY}
    unknown = [name for name in undefined_symbols(code) if name not in known]
    if unknown:
        raise Unsupported(
            f"this kernel needs {', '.join(unknown)} on this processor, which is not allowed"
        )
    missing = [
        name
        for name in undefined_symbols(code)
        if name in abi.RUNTIME_FUNCTIONS and name not in _addresses
    ]
    if missing:
        raise RuntimeError(f"the run-time did not register {', '.join(missing)}")


def undefined_symbols(code: bytes) -> list[str]:
    """Names that an ELF64 object file (little-endian) expects others to define."""
    if code[:4] != b"\x7fELF" or code[4] != 2:
        return sorted(set(re.findall(r"\brt_\w+", code.decode("latin1"))))
    start, count = struct.unpack_from("<Q", code, 40)[0], struct.unpack_from("<H", code, 60)[0]
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, start + 64 * k) for k in range(count)]
    names = []
    for section in sections:
        if section[1] != 2:  # SHT_SYMTAB
            continue
        offset, size, strings = section[4], section[5], sections[section[6]][4]
        for at in range(offset + 24, offset + size, 24):
            name, _, _, index = struct.unpack_from("<IBBH", code, at)
            if index == 0 and name:
                end = code.index(b"\0", strings + name)
                names.append(code[strings + name : end].decode())
    return names
