"""Directed rounding: the nearest value, moved by one step where it lies on the wrong side."""

from __future__ import annotations

from course_lib.virtual_gpu.emit.builder import Builder

#: PTX rounding modes other than to nearest even.
DIRECTED = ("rz", "rm", "rp")


def round_directed(e: Builder, value: str, mode: str) -> str:
    """double -> float."""
    nearest = e.t(f"fptrunc double {value} to float")
    bits = e.t(f"bitcast float {nearest} to i32")
    back = e.t(f"fpext float {nearest} to double")
    return e.t(f"bitcast i32 {step(e, bits, 32, back, value, 'double', mode)} to float")


def step(e: Builder, bits: str, width: int, rounded: str, exact: str, kind: str, mode: str) -> str:
    """Moves ``bits`` one step if ``rounded`` (their value) is beyond ``exact`` in this mode.

    The bits of floats are sign and magnitude, so one step towards zero is minus one, and towards
    minus infinity is plus one for negative values.
    """
    t = f"i{width}"
    negative = e.t(f"icmp slt {t} {bits}, 0")
    if mode == "rz":
        suffix = "f64" if kind == "double" else "f32"
        a, b = (e.intrinsic(f"llvm.fabs.{suffix}", kind, [(kind, v)]) for v in (rounded, exact))
        beyond = e.t(f"fcmp ogt {kind} {a}, {b}")
        change = "-1"
    elif mode == "rm":
        beyond = e.t(f"fcmp ogt {kind} {rounded}, {exact}")
        change = e.t(f"select i1 {negative}, {t} 1, {t} -1")
    else:
        beyond = e.t(f"fcmp olt {kind} {rounded}, {exact}")
        change = e.t(f"select i1 {negative}, {t} -1, {t} 1")
    moved = e.t(f"add {t} {bits}, {change}")
    return e.t(f"select i1 {beyond}, {t} {moved}, {t} {bits}")
