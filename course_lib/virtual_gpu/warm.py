"""`python -m course_lib.virtual_gpu.warm`: compile the virtual GPU's runtime for this machine."""

from __future__ import annotations

import time


def warm() -> str:
    """Compile the runtime unless it is there; returns a line that says what was done."""
    from course_lib.virtual_gpu import runtime

    start = time.perf_counter()
    ready = runtime.object_path().exists()
    runtime.load()
    took = time.perf_counter() - start
    done = "was ready, loaded" if ready else "compiled"
    return f"virtual GPU: runtime {done} in {took:.1f} s ({runtime.object_path().parent})"


if __name__ == "__main__":
    print(warm())
