"""What translated kernels and the run-time agree on: two records, address windows, yield reasons.

A kernel becomes one native function ``i32 step(ptr thread, ptr block)``.  It runs one thread until
that thread needs somebody else (a barrier, a shuffle), ends, faults, or has used its fuel, and
returns the reason (``Y_*``).  Everything the two sides exchange lies in two records of 64-bit
slots: the thread record (``T_*``) and the block record (``B_*``).

Addresses: the top bits (from ``WINDOW_SHIFT``) of a 64-bit generic address name a window.  A table
(``B_TABLE``) holds host base and byte size of each, so one comparison checks any access:
window 0 (null) has size 0.  Shared and local addresses are plain 32-bit offsets.
"""

from __future__ import annotations

# --- thread record: 64-bit slots ------------------------------------------------------------
T_RESUME = 0  # resume point: 0 = start of the kernel; written by step at each yield
T_ACCESSES = 1  # timed build: accesses to shared memory in this turn; zeroed by run-time
T_A0, T_A1, T_A2, T_A3, T_A4, T_A5 = 2, 3, 4, 5, 6, 7  # arguments of the yield
T_R0, T_R1 = 8, 9  # results that the run-time leaves for the resumed thread
T_CLOCK = 10  # virtual cycles (timed build: in and out at every yield and run-time call)
T_SITE = 11  # site (index into Module.sites) of the yield or of the fault
T_THREAD = 12  # linear index in the block
T_TID_X, T_TID_Y, T_TID_Z = 13, 14, 15
T_LANE, T_WARP = 16, 17
T_STALL = 18  # timed build: cycles this thread waited for registers; added to, zeroed by run-time
T_FUEL = 19  # back edges left before Y_FUEL; refilled by the run-time
T_RUNTIME = 20  # slots 20 to 55 belong to the run-time
T_LIVE = 56  # from here: live registers across a yield (CompiledKernel.thread_slots in all)

# --- block record: 64-bit slots -------------------------------------------------------------
B_CTAID_X, B_CTAID_Y, B_CTAID_Z = 0, 1, 2
B_NTID_X, B_NTID_Y, B_NTID_Z = 3, 4, 5
B_NCTAID_X, B_NCTAID_Y, B_NCTAID_Z = 6, 7, 8
B_SHARED = 9  # host pointer of the shared memory (static, then dynamic), 64-byte aligned or more
B_SHARED_BYTES = 10  # static + dynamic
B_LOCAL = 11  # host pointer: local memory of thread 0; thread t is at t * B_LOCAL_BYTES
B_LOCAL_BYTES = 12  # per thread (CompiledKernel.local_bytes)
B_PARAMETERS = 13  # host pointer of the packed kernel parameters
B_TABLE = 14  # host pointer of the window table: (host base, bytes) pairs of i64
B_TABLE_COUNT = 15  # number of windows in the table
B_VALID = 16  # host pointer: one byte per shared byte, 1 = written (0: recorded when read)
B_STALLS = 17  # timed build: host pointer of i64[number of sites], waited cycles per lane
B_COUNTERS = 18  # timed build: host pointer of i64[C_COUNT]
B_SHARED_LATENCY = 19  # timed build: cycles from a shared load to its value
B_SM = 20  # %smid
B_SM_COUNT = 21  # %nsmid
B_ACCESSES = 22  # timed build: host pointer of i64[32][ACCESS_LOG], a warp's accesses by lane
B_RUNTIME = 32  # slots from here belong to the run-time
B_SLOTS = 256  # size of the record

# Timed build: each lane's latest accesses to shared memory in this turn. A note is site, bytes and
# offset; shared_unit.py puts the lanes' notes side by side.
ACCESS_LOG = 1024
ACCESS_BYTES_SHIFT = 24
ACCESS_SITE_SHIFT = 32

# --- address windows ------------------------------------------------------------------------
WINDOW_SHIFT = 40
WINDOW_MASK = (1 << WINDOW_SHIFT) - 1
WINDOW_NULL = 0
WINDOW_SHARED = 1  # table entry: this block's shared memory
WINDOW_LOCAL = 2  # table entry: (0, B_LOCAL_BYTES); step adds the thread's own base
WINDOW_PARAMETERS = 3
WINDOW_GLOBALS = 4  # __device__ and __constant__ variables and string literals of the module
WINDOW_USER = 5  # first array argument; one window for each

# --- yield reasons: what step returns -------------------------------------------------------
Y_EXIT = 0
Y_BARRIER = 1  # A0 barrier id, A1 thread count (0 = all), A2 predicate, A3 REDUCE_*; R0 result
Y_ARRIVE = 2  # as Y_BARRIER, but the thread goes on
Y_SHUFFLE = 3  # A0 SHUFFLE_*, A1 value, A2 lane operand, A3 clamp/mask, A4 members; R0 value, R1 ok
Y_SYNCWARP = 4  # A4 members
Y_VOTE = 5  # A0 VOTE_*, A1 value or predicate, A4 members; R0 result, R1 predicate
Y_FUEL = 6  # T_FUEL is 0
Y_SLEEP = 7  # nanosleep: A0 nanoseconds
Y_ERROR = 8  # A0 F_*, A1 address, A2 bytes, A3 alignment, A4 ACCESS_*
Y_MBARRIER = (
    9  # A0 shared offset, A1 token or parity, A2 1 = parity, A3 1 = try_wait, A4 1 = relaxed
)
Y_MATRIX = 10  # whole warp: A0 MATRIX_*, A1 form, A2 .trans, A3 shared offset, A5 host payload
Y_WGMMA = 11  # until the warpgroup has issued what T_WGMMA_NEEDS says; then the same again

REDUCE_NONE, REDUCE_POPC, REDUCE_AND, REDUCE_OR = 0, 1, 2, 3
SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_BFLY, SHUFFLE_IDX = 0, 1, 2, 3

# Modes of Y_VOTE.
VOTE_BALLOT, VOTE_ANY, VOTE_ALL, VOTE_UNI = 0, 1, 2, 3
MATCH_ANY, MATCH_ALL = 10, 11
ACTIVE_MASK = 20  # A4 = 0: the lanes that are here together
ELECT = 21  # R0 lowest member lane, R1 = 1 for that lane
REDUX_ADD, REDUX_MIN, REDUX_MAX, REDUX_AND, REDUX_OR, REDUX_XOR = 30, 31, 32, 33, 34, 35
REDUX_SIGNED = 10  # added to a REDUX_* mode for signed 32-bit values (A1 sign-extended)

# Modes of Y_MATRIX, and where the results begin in the payload (32-bit words).
MATRIX_LOAD, MATRIX_STORE, MATRIX_MMA, MATRIX_WMMA = 0, 1, 2, 3
MATRIX_RESULTS = 32
MATRIX_WORDS = 48
# Form of mma and wmma: flags that are added.
FORM_BFLOAT, FORM_K8, FORM_HALF_SUM, FORM_HALF_RESULT = 1, 2, 4, 8
# Shape of wgmma: n + flags.
WGMMA_BFLOAT, WGMMA_ADD, WGMMA_NEGATIVE, WGMMA_A_ACROSS, WGMMA_B_ACROSS, WGMMA_A_HELD = (
    1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 21,
)  # fmt: skip
WGMMA_N = 0xFFFF
# An accumulator register that a wgmma still works on holds a NaN that says which it is: moves carry
# it along, arithmetic on it gives NaN, and the wait puts the result in its place.
IN_FLIGHT = 0x7FDA
IN_FLIGHT_SHIFT = 16

# --- faults: A0 of Y_ERROR ------------------------------------------------------------------
F_SHARED = 1  # shared access out of bounds or misaligned: A1 is a plain offset
F_LOCAL = 2  # the same for local memory
F_GLOBAL = 3  # global or generic access: A1 is the windowed address
F_TRAP = 4
F_ASSERT = 5  # A1 message, A2 file, A5 function: windowed addresses of text; A3 line
F_BRANCH = 6  # brx index outside its table
F_DIVIDE = 7  # reported through rt_divide (a warning); never yielded
F_BARRIER = 8  # a barrier number above 15: A1
F_MBARRIER = 20  # A1 shared offset, A2 answer of the run-time (records.MB_*)
F_BULK = 21  # A1 shared offset, A2 answer of the run-time (records.BULK_* or MB_*)
F_MATRIX_APART = 30  # lanes of a warp, or warps of a warpgroup, at different matrix instructions
F_WARPGROUP = 31  # wgmma in a warpgroup that has fewer than 128 threads
F_DESCRIPTOR = 32  # wgmma operand outside shared memory: A1 and A2 are the descriptors of A and B

ACCESS_READ, ACCESS_WRITE, ACCESS_ATOMIC, ACCESS_COPY = 0, 1, 2, 3

# --- counters of the timed build (per lane; divide by 32 for warp instructions) -------------
C_INSTRUCTIONS = 0
C_GLOBAL_LOAD_BYTES = 1
C_GLOBAL_STORE_BYTES = 2
C_SHARED_LOAD_BYTES = 3
C_SHARED_STORE_BYTES = 4
C_FLOPS = 5  # an fma counts two, per element of a packed operation
C_INTEGER_OPS = 6
C_COPY_BYTES = 7  # bytes that asynchronous copies write (counted by the run-time)
C_COUNT = 16

# --- run-time functions that translated code may call ---------------------------------------
# All take (ptr block, ptr thread, i64...).  Nothing else but the libm functions of jit.py resolves.
RUNTIME_FUNCTIONS: dict[str, tuple[str, int]] = {
    # shared offset, host source, bytes, source bytes, site, windowed source address
    "rt_copy_async": ("void", 6),
    "rt_copy_commit": ("void", 0),
    "rt_copy_wait": ("void", 2),  # groups that may stay pending, site
    "rt_copy_arrive": ("i64", 3),  # shared offset of the mbarrier, 1 = .noinc, site
    "rt_mbarrier_init": ("i64", 3),  # shared offset, arrivals, site
    "rt_mbarrier_inval": ("i64", 2),  # shared offset, site
    "rt_mbarrier_arrive": ("i64", 4),  # shared offset, count, flags, site -> state token
    "rt_mbarrier_tx": ("i64", 3),  # shared offset, bytes expected (negative: complete), site
    "rt_bulk_load": ("i64", 5),  # shared offset, windowed source, bytes, mbarrier offset, site
    "rt_bulk_store": ("i64", 4),  # windowed target, shared offset, bytes, site
    # shared offset, host address of the map, mbarrier offset, x, y, z, kind, site
    "rt_tensor_copy": ("i64", 8),
    "rt_bulk_commit": ("void", 0),
    "rt_bulk_wait": ("void", 3),  # groups that may stay pending, 1: of sources' reads, site
    "rt_printf": ("i64", 3),  # windowed addresses of the format and of the arguments, site
    "rt_shared_uninitialised": ("void", 3),  # shared offset, bytes, site
    "rt_divide": ("void", 1),  # site: an integer division by zero was met
    # checked build only:
    "rt_check_read": ("void", 3),  # shared offset, bytes, site
    "rt_check_write": ("void", 3),
    "rt_check_atomic": ("void", 4),  # shared offset, bytes, site, flags of happens_before
    "rt_order_word": ("void", 3),  # windowed address of a word, WORD_*, ORDER_*
    "rt_order_fence": ("void", 1),  # 1: its scope holds other blocks
    "rt_check_global": ("void", 4),  # windowed address, bytes, site, flags of happens_before
    "rt_order_proxies": ("void", 0),
    # host payload, descriptors of A and B, shape, site -> number of its first register in flight,
    # or -1: wait first, or -F_*
    "rt_wgmma": ("i64", 5),
    "rt_wgmma_commit": ("void", 0),
    "rt_wgmma_wait": ("i64", 2),  # groups that may stay pending, site -> 0: wait first
    "rt_wgmma_resolve": ("void", 2),  # host payload, words
    "rt_accumulator": ("void", 3),  # 1: early read, 2: fence missing; its value; site
    # timed build only:
    "rt_global_load": ("i64", 3),  # windowed address, bytes, site -> cycle when the data is there
    "rt_global_store": ("void", 3),  # windowed address, bytes, site
}

# What a strong access does to its word, and how it orders (PTX ISA, .sem).
# WORD_REDUCE is an update that returns nothing: it cannot acquire (PTX ISA, acquire patterns).
WORD_LOAD, WORD_STORE, WORD_UPDATE, WORD_REDUCE = 0, 1, 2, 3
ORDER_RELAXED, ORDER_ACQUIRE, ORDER_RELEASE = 0, 1, 2  # flags; both: acq_rel
ORDER_DEVICE = 4  # with these: the scope holds other blocks

# Which memory a checked build follows.
CHECK_SHARED, CHECK_GLOBAL = 1, 2

# --- issue cost per opcode class --------------------------------------------------------------
# Cycles of one scheduler per warp instruction: (issue slots, integer pipe, multiplier pipe). A
# scheduler issues one instruction per cycle; the integer and the multiplier pipe are 16 lanes wide
# and need two cycles for a warp, side by side (measured pairs: xor+shl 4.07, xor+mad 2.22,
# xor+add 2.24). The assembler spreads additions over both (IADD3 and
# IMAD on the H200: 1.05 cycles an addition, 2.03 a multiplication, 1.06 an fma).
ISSUE_COST: dict[str, tuple[int, int, int]] = {
    "float32": (1, 0, 0),
    "float16": (1, 0, 0),
    "float64": (2, 0, 0),
    "integer": (1, 2, 0),
    "add": (1, 0, 0),
    "multiply": (1, 0, 2),
    "special": (8, 0, 0),
    "convert": (1, 2, 0),
    "move": (1, 0, 0),
    "memory": (1, 0, 0),
    "control": (1, 0, 0),
    "warp": (2, 0, 0),
    "free": (0, 0, 0),
}
