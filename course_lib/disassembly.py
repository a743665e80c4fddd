"""Machine code as text, where CUDA's disassembler is there (the course's wheels bring none)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

MISSING = (
    "The machine code can be shown only with nvdisasm, which is not on this machine: "
    "`pip install nvidia-cuda-nvdisasm` (or a CUDA toolkit) has it. "
    "`kernel.ptx(line=...)` shows the step before, and needs nothing."
)


def find() -> str | None:
    """Where `nvdisasm` is: a wheel's, CUDA_HOME's, or the one on PATH; None where there is none."""
    candidates: list[str | None] = []
    try:
        from cuda import pathfinder

        candidates.append(pathfinder.find_nvidia_binary_utility("nvdisasm"))
    except Exception:  # an older pathfinder has no such search
        candidates.append(None)
    home = os.environ.get("CUDA_HOME")
    candidates.append(str(Path(home) / "bin" / "nvdisasm") if home else None)
    candidates += [shutil.which("nvdisasm"), "/usr/local/cuda/bin/nvdisasm"]
    for path in candidates:
        if path and os.access(path, os.X_OK):
            return str(path)
    return None


def disassemble(cubin: bytes, name: str, source: str, line: int | None = None) -> str:
    """SASS of kernel `name`, or the sentence that says which package brings the disassembler."""
    tool = find()
    if tool is None:
        return MISSING
    with tempfile.TemporaryDirectory(prefix="sass-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [tool, "-c", "-gi", "-fun", name, str(path)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if ran.returncode:  # -fun takes an index in some versions
            command = [tool, "-c", "-gi", str(path)]
            ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if ran.returncode:
        return f"nvdisasm could not read this kernel: {ran.stderr.strip()}"
    text = ran.stdout
    return text if line is None else _of_line(text, source, line)


_SASS_LINE = re.compile(r'//## File "([^"]*)", line (\d+)( inlined at "([^"]*)", line (\d+))?')


def _of_line(text: str, source: str, line: int) -> str:
    """The instructions whose innermost line in the cell is `line`."""
    lines = source.splitlines()
    if not 1 <= line <= len(lines):
        raise ValueError(f"the source has lines 1 to {len(lines)}, not {line}")
    kept, current, after_code = [], 0, True
    for row in text.splitlines():
        match = _SASS_LINE.search(row)
        if match:
            here = 0
            for file, number in ((match[1], match[2]), (match[4], match[5])):
                if not here and file and file.endswith("cell.cu"):
                    here = int(number)
            # Inlined code lists its chain innermost first: the first line in the cell counts.
            current = here if after_code else (current or here)
            after_code = False
        elif re.search(r"/\*[0-9a-f]{4,}\*/", row):
            after_code = True
            if current == line:
                kept.append(row.strip())
    body = "\n".join(f"    {row}" for row in kept) or "// this line became no instructions"
    return f"// line {line}: {lines[line - 1].strip()}\n{body}"
