"""Matrix instructions of one warp: mma.sync, wmma.mma, ldmatrix, stmatrix.

Each lane leaves its registers in a payload; when the whole warp has come, the operands are gathered
into small float32 matrices, multiplied, and the results dealt out again. The layouts are those of
the PTX ISA ("Matrix fragments for mma.m16n8k16" and its neighbours, "ldmatrix"). That of a wmma
fragment is not specified: here lane l holds row (A) or column (B) l mod 16, and half a row of C.
"""

from __future__ import annotations

from course_lib.virtual_gpu.abi import (
    ACCESS_READ,
    ACCESS_WRITE,
    B_SHARED,
    B_SHARED_BYTES,
    B_VALID,
    F_MATRIX_APART,
    F_SHARED,
    FORM_BFLOAT,
    FORM_HALF_RESULT,
    FORM_HALF_SUM,
    FORM_K8,
    MATRIX_LOAD,
    MATRIX_MMA,
    MATRIX_RESULTS,
    MATRIX_STORE,
    T_A0,
    T_A1,
    T_A2,
    T_A3,
    T_A4,
    T_A5,
    T_CLOCK,
    T_RESUME,
    T_SITE,
)
from course_lib.virtual_gpu.clock import advance_to
from course_lib.virtual_gpu.happens_before import WRITES, plain_access
from course_lib.virtual_gpu.matrix_math import (
    load16,
    load32,
    multiply_8,
    multiply_16,
    narrow_float,
    store16,
    store32,
    widen_half,
)
from course_lib.virtual_gpu.notes import rt_shared_uninitialised
from course_lib.virtual_gpu.raw import fill_bytes, load64, native, store64
from course_lib.virtual_gpu.records import (
    B_THREAD_BYTES,
    B_THREADS,
    DONE,
    FAULT,
    FULL_WARP,
    K_CHECK,
    K_COLLECTIVE_CYCLES,
    K_FAULT_THREAD,
    K_MATRIX_SCRATCH,
    K_TENSOR_FMA,
    K_TENSOR_FREE,
    K_TIMED,
    W_CLOCK,
    W_EXITED,
    W_MATRIX,
    W_READY,
)

ONES = 0x0101010101010101
ROW_BYTES = 16  # of one row of an 8×8 matrix of halves


@native
def complete_matrix(core, block, warp, record):
    """Perform the instruction that the whole warp has come to; DONE, or FAULT."""
    waiting = load64(record, W_MATRIX)
    if (waiting | load64(record, W_EXITED)) != FULL_WARP:
        return DONE
    stride = load64(block, B_THREAD_BYTES)
    threads = load64(block, B_THREADS) + warp * 32 * stride
    for lane in range(32):
        thread = threads + lane * stride
        apart = load64(thread, T_RESUME) != load64(threads, T_RESUME)
        if apart or not (waiting >> lane) & 1:
            return fault(core, thread, warp * 32 + lane, F_MATRIX_APART, 0, 0, 0)
    kind = load64(threads, T_A0)
    flops = 0
    if kind == MATRIX_LOAD or kind == MATRIX_STORE:
        status = move_rows(core, block, threads, stride, warp, kind)
        if status != DONE:
            return status
    elif kind == MATRIX_MMA:
        multiply_mma(core, threads, stride)
        flops = 16 * 8 * (8 if load64(threads, T_A1) & FORM_K8 else 16)
    else:
        multiply_wmma(core, threads, stride)
        flops = 16 * 16 * 16
    store64(record, W_MATRIX, 0)
    store64(record, W_READY, load64(record, W_READY) | waiting)
    if load64(core, K_TIMED) != 0:
        take_time(core, block, threads, stride, record, flops)
    return DONE


@native
def fault(core, thread, index, code, address, count, access):
    """End the run at this thread."""
    store64(thread, T_A0, code)
    store64(thread, T_A1, address)
    store64(thread, T_A2, count)
    store64(thread, T_A3, count)
    store64(thread, T_A4, access)
    store64(core, K_FAULT_THREAD, index)
    return FAULT


@native
def take_time(core, block, threads, stride, record, flops):
    """The warp goes on when its results are there: a product takes its turn at the tensor cores."""
    clock = load64(threads, T_CLOCK)
    if flops > 0:
        clock = occupy_tensor(core, clock, flops)
    clock += load64(core, K_COLLECTIVE_CYCLES)
    for lane in range(32):
        advance_to(block, threads + lane * stride, clock)
    store64(record, W_CLOCK, max(load64(record, W_CLOCK), clock))


@native
def occupy_tensor(core, now, multiplies):
    """The cycle at which the SM's tensor cores have done so many multiply-adds, first come first.

    Resident blocks share the one queue.
    """
    rate = max(1, load64(core, K_TENSOR_FMA))
    start = max(now, load64(core, K_TENSOR_FREE))
    end = start + (multiplies + rate - 1) // rate
    store64(core, K_TENSOR_FREE, end)
    return end


# --- ldmatrix, stmatrix -----------------------------------------------------------------------


@native
def move_rows(core, block, threads, stride, warp, kind):
    """Load or store one, two or four 8×8 matrices; lane 8·i + r has the address of row r of i."""
    count = load64(threads, T_A1)
    limit = load64(block, B_SHARED_BYTES)
    access = ACCESS_READ if kind == MATRIX_LOAD else ACCESS_WRITE
    for lane in range(count * 8):
        thread = threads + lane * stride
        offset = load64(thread, T_A3)
        if offset & (ROW_BYTES - 1) or offset + ROW_BYTES > limit:
            return fault(core, thread, warp * 32 + lane, F_SHARED, offset, ROW_BYTES, access)
        use_row(core, block, thread, offset, kind)
    shared = load64(block, B_SHARED)
    across = load64(threads, T_A2)
    for matrix in range(count):
        for lane in range(32):
            payload = load64(threads + lane * stride, T_A5)
            word = load32(payload, matrix) if kind == MATRIX_STORE else 0
            for half in range(2):
                row, column = lane >> 2, (lane & 3) * 2 + half
                if across != 0:
                    row, column = column, row
                address = shared + load64(threads + (matrix * 8 + row) * stride, T_A3)
                if kind == MATRIX_LOAD:
                    word |= load16(address, column) << (16 * half)
                else:
                    store16(address, column, word >> (16 * half))
            if kind == MATRIX_LOAD:
                store32(payload, MATRIX_RESULTS + matrix, word)
    return DONE


@native
def use_row(core, block, thread, offset, kind):
    """Note what an access to 16 bytes of shared memory means for the rest of the virtual GPU."""
    valid = load64(block, B_VALID) + offset
    site = load64(thread, T_SITE)
    if kind == MATRIX_STORE:
        store64(valid, 0, ONES)
        store64(valid, 1, ONES)
    elif load64(valid, 0) != ONES or load64(valid, 1) != ONES:
        rt_shared_uninitialised(block, thread, offset, ROW_BYTES, site)
    if load64(core, K_CHECK) != 0:
        flags = WRITES if kind == MATRIX_STORE else 0
        plain_access(block, thread, offset, ROW_BYTES, site, flags)


# --- products ---------------------------------------------------------------------------------


@native
def widened(word, half, form):
    """One half of a register as the bits of a float32."""
    bits = (word >> (16 * half)) & 0xFFFF
    return bits << 16 if form & FORM_BFLOAT else widen_half(bits)


@native
def multiply_mma(core, threads, stride):
    """m16n8k16 and m16n8k8: D = A·B + C."""
    form = load64(threads, T_A1)
    a = load64(core, K_MATRIX_SCRATCH)
    b = a + 16 * 16 * 4
    c = b + 16 * 8 * 4
    short = form & FORM_K8
    if short:
        fill_bytes(a, 0, 16 * 16 * 4 + 16 * 8 * 4)
    of_a = 2 if short else 4
    of_b = 1 if short else 2
    for lane in range(32):
        payload = load64(threads + lane * stride, T_A5)
        group, pair = lane >> 2, (lane & 3) * 2
        for register in range(of_a):
            word = load32(payload, register)
            row = group + 8 * (register & 1)
            for half in range(2):
                column = pair + half + 8 * (register >> 1)
                store32(a, row * 16 + column, widened(word, half, form))
        for register in range(of_b):
            word = load32(payload, of_a + register)
            for half in range(2):
                row = pair + half + 8 * register
                store32(b, row * 8 + group, widened(word, half, form))
        take_sums(c, payload, of_a + of_b, form, group * 8 + pair, (group + 8) * 8 + pair, 2)
    for row in range(0, 16, 4):
        multiply_8(c + row * 8 * 4, a + row * 16 * 4, b, 8 * 4)
    for lane in range(32):
        payload = load64(threads + lane * stride, T_A5)
        group, pair = lane >> 2, (lane & 3) * 2
        give_sums(c, payload, form, group * 8 + pair, (group + 8) * 8 + pair, 2)


@native
def take_sums(c, payload, first, form, one, other, run):
    """A lane's share of C: `run` elements at index `one` and as many at index `other`."""
    for k in range(2 * run):
        at = one + k if k < run else other + k - run
        if form & FORM_HALF_SUM:
            store32(c, at, widened(load32(payload, first + (k >> 1)), k & 1, 0))
        else:
            store32(c, at, load32(payload, first + k))


@native
def give_sums(c, payload, form, one, other, run):
    """A lane's share of D, into the results of its payload."""
    for k in range(2 * run):
        value = load32(c, one + k if k < run else other + k - run)
        if form & FORM_HALF_RESULT:
            store16(payload, 2 * MATRIX_RESULTS + k, narrow_float(value))
        else:
            store32(payload, MATRIX_RESULTS + k, value)


@native
def multiply_wmma(core, threads, stride):
    """m16n16k16: D = A·B + C."""
    form = load64(threads, T_A1)
    a = load64(core, K_MATRIX_SCRATCH)
    b = a + 16 * 16 * 4
    c = b + 16 * 16 * 4
    for lane in range(32):
        payload = load64(threads + lane * stride, T_A5)
        for k in range(16):
            if lane < 16:
                store32(a, lane * 16 + k, widened(load32(payload, k >> 1), k & 1, form))
                store32(b, k * 16 + lane, widened(load32(payload, 8 + (k >> 1)), k & 1, form))
        at = (lane >> 1) * 16 + (lane & 1) * 8
        take_sums(c, payload, 16, form, at, at + 4, 4)
    for row in range(0, 16, 4):
        multiply_16(c + row * 16 * 4, a + row * 16 * 4, b, 16 * 4)
    for lane in range(32):
        at = (lane >> 1) * 16 + (lane & 1) * 8
        give_sums(c, load64(threads + lane * stride, T_A5), form, at, at + 4, 4)
