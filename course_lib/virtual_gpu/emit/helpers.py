"""Small LLVM functions that the emitters call; each is inlined where it is used."""

from __future__ import annotations

TEXT: dict[str, str] = {
    # To nearest even on the upper 16 bits; NaN becomes the canonical one.
    "float_to_bf16": """
define internal i16 @float_to_bf16(float %x) alwaysinline {
  %b = bitcast float %x to i32
  %h = lshr i32 %b, 16
  %o = and i32 %h, 1
  %r = add i32 %b, 32767
  %s = add i32 %r, %o
  %n = fcmp uno float %x, 0.0
  %v = select i1 %n, i32 2147418112, i32 %s
  %u = lshr i32 %v, 16
  %t = trunc i32 %u to i16
  ret i16 %t
}""",
    # Rounds to odd, so that a second rounding to a narrower type gives the right result.
    "double_to_float_odd": """
define internal float @double_to_float_odd(double %x) alwaysinline {
  %f = fptrunc double %x to float
  %w = fpext float %f to double
  %exact = fcmp ueq double %w, %x
  %aw = call double @llvm.fabs.f64(double %w)
  %ax = call double @llvm.fabs.f64(double %x)
  %over = fcmp ogt double %aw, %ax
  %b = bitcast float %f to i32
  %m = sub i32 %b, 1
  %d = select i1 %over, i32 %m, i32 %b
  %o = or i32 %d, 1
  %v = select i1 %exact, i32 %b, i32 %o
  %r = bitcast i32 %v to float
  ret float %r
}
declare double @llvm.fabs.f64(double)""",
}
