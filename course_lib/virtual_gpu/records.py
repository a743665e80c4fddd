"""Layout of the runtime's own records: cores, warps, barriers, copies, queues and the caches' tags.

The records that translated code sees too are in `abi`; slots here continue them. A *core* is one
SM as one worker simulates it: its resident blocks, the blocks still to run, and what they share.
All records are arrays of 64-bit slots; names end in the unit where it is not obvious.
"""

from __future__ import annotations

from course_lib.virtual_gpu.abi import B_RUNTIME, T_RUNTIME

# --- thread record, slots of the runtime ----------------------------------------------------
T_REASON = T_RUNTIME + 0  # why the thread yielded last (Y_*)
T_COPY_FIRST = T_RUNTIME + 1  # address of its oldest copy in flight, 0 = none
T_COPY_LAST = T_RUNTIME + 2
T_COPY_GROUP = T_RUNTIME + 3  # number of the group that is open for new copies
T_WAIT_SITE = T_RUNTIME + 4  # where the thread waited for copies in this turn, -1 = nowhere
T_EPOCH = T_RUNTIME + 5  # checked run: its accesses now are events (thread, epoch)
T_COPY_COLUMN = T_RUNTIME + 6  # column of its cp.async groups, 0 = none yet
T_CHANGED = T_RUNTIME + 7  # CHANGED_*: what its clock holds beyond the base vector
T_FENCED = T_RUNTIME + 8  # vector: its clock at its last fence, 0 = none
T_SEEN = T_RUNTIME + 9  # vector: what its relaxed reads saw, for its next fence, 0 = nothing
# Slots by subject: happens_before T_RUNTIME + 5 to 11, mbarriers and bulk copies + 12 to 23,
# tensor cores + 24 to 35.

T_WGMMA_ISSUED = T_RUNTIME + 24  # wgmma instructions that the thread has issued
T_WGMMA_GROUP = T_RUNTIME + 25  # number of its open wgmma group
T_WGMMA_DONE = T_RUNTIME + 26  # groups that it has waited for
T_WGMMA_NEEDS = T_RUNTIME + 27  # Y_WGMMA: how many of them the whole warpgroup must have issued

# --- block record, slots of the runtime -----------------------------------------------------
B_CORE = B_RUNTIME + 0  # address of the core record
B_STEP = B_RUNTIME + 1  # address of the translated kernel
B_THREADS = B_RUNTIME + 2  # address of thread record 0
B_THREAD_BYTES = B_RUNTIME + 3  # from one thread record to the next
B_THREAD_COUNT = B_RUNTIME + 4
B_WARPS = B_RUNTIME + 5  # address of warp record 0
B_WARP_COUNT = B_RUNTIME + 6
B_BARRIERS = B_RUNTIME + 7  # address of barrier record 0
B_LINEAR = B_RUNTIME + 8  # linear index of the block in the grid, -1 = nobody lives here
B_LIVE = B_RUNTIME + 9  # threads that have not exited
B_STEPS_LEFT = B_RUNTIME + 10  # of the step budget
B_COPIES = B_RUNTIME + 11  # address of the pool of copy records
B_COPY_CAPACITY = B_RUNTIME + 12  # records in the pool
B_COPY_USED = B_RUNTIME + 13  # records of the pool that were ever used
B_COPY_FREE = B_RUNTIME + 14  # address of the first free one, 0 = none
B_COPIES_IN_FLIGHT = B_RUNTIME + 15
B_START_CLOCK = B_RUNTIME + 16
B_ARRIVED = B_RUNTIME + 17  # barriers that threads have arrived at: bit i = barrier i
B_CELLS = B_RUNTIME + 20  # checked run: address of the shadow cells
B_CELLS_BYTES = B_RUNTIME + 21
B_ROWS = B_RUNTIME + 22  # address of vector 0; the clocks of the threads come first
B_ROW_BYTES = B_RUNTIME + 23
B_COLUMNS = B_RUNTIME + 24  # columns in use
B_COLUMN_CAPACITY = B_RUNTIME + 25  # of one part of a vector
B_VECTORS = B_RUNTIME + 26  # vectors in use
B_VECTOR_CAPACITY = B_RUNTIME + 27
B_COLUMN_KINDS = B_RUNTIME + 28  # address: kind and owner of each column, 32 bits each
B_FREE_READ = B_RUNTIME + 29  # address of the first free read record
B_CHUNKS = B_RUNTIME + 30  # address of the first chunk of read records
B_CHUNK = B_RUNTIME + 31  # the chunk that is being used up
B_CHUNK_USED = B_RUNTIME + 32  # bytes
B_WARP_BASE = B_RUNTIME + 33  # address: for each warp, the least epoch that the base holds
B_WORDS = B_RUNTIME + 34  # address of the hash table of words that order threads
B_WORD_CAPACITY = B_RUNTIME + 35
B_WORD_COUNT = B_RUNTIME + 36
B_CHUNK_COUNT = B_RUNTIME + 37
# Slots by subject: happens_before B_RUNTIME + 20 to 59, mbarriers and bulk copies + 60 to 99,
# tensor cores + 100 to 129, clock + 130 to 159.

B_WARPGROUPS = B_RUNTIME + 100  # address of warpgroup record 0, 0 = the kernel has no wgmma
B_WGMMA_WAITING = B_RUNTIME + 101  # 1: lanes wait until their warpgroup has issued a wgmma

# --- warp record ----------------------------------------------------------------------------
W_READY = 0  # lanes that can run
W_EXITED = 1  # lanes that have exited, and those that never were
W_COLLECTIVE = 2  # lanes that wait in a warp-wide operation
W_BARRIER = 3  # lanes that wait at a barrier of the block
W_CLOCK = 4  # virtual cycles
W_MATRIX = 8  # lanes that wait at a matrix instruction of the warp
W_WGMMA = 9  # lanes that wait for other warps of their warpgroup
W_SLOTS = 16
WARP_BYTES = W_SLOTS * 8
FULL_WARP = 0xFFFFFFFF

# --- barrier record -------------------------------------------------------------------------
BARRIER_COUNT = 16  # PTX: every block has 16 barriers
BAR_ARRIVED = 0  # threads that have arrived, in whole warps
BAR_EXPECTED = 1  # threads that complete it, 0 = all that live
BAR_TRUE = 2  # arrivals whose predicate is true (bar.red)
BAR_VOTES = 3  # arrivals in all, by lane
BAR_CLOCK = 4  # latest arrival
BAR_VECTOR = 5  # checked run: vector of the threads that only arrived, 0 = never needed
BAR_MARKED = 6  # checked run: 1 = that vector holds something
BAR_PARTIAL = 8  # from here: for each warp, lanes that have arrived while the warp is incomplete
MAX_WARPS = 32
BAR_HELD = BAR_PARTIAL + MAX_WARPS  # checked run: vector of each warp's lanes that only arrived
BAR_WAITS = BAR_HELD + MAX_WARPS  # checked run: lanes of each warp that are about to go on
BAR_SLOTS = BAR_WAITS + MAX_WARPS
BARRIER_BYTES = BAR_SLOTS * 8

# --- record of one asynchronous copy in flight ----------------------------------------------
CP_NEXT = 0  # the same thread's next younger copy, 0 = none
CP_TARGET = 1  # offset in shared memory
CP_SOURCE = 2  # host address
CP_BYTES = 3
CP_SOURCE_BYTES = 4  # the rest is filled with zeros
CP_GROUP = 5
CP_SITE = 6
CP_LANDED = 7  # 1: its bytes are already in shared memory
CP_READY_CLOCK = 8
CP_ARRIVES = 9  # 1: no copy, but the arrival that cp.async.mbarrier.arrive left behind them
CP_SLOTS = 10
COPY_BYTES = CP_SLOTS * 8

# --- core record ----------------------------------------------------------------------------
K_BLOCKS = 0  # address of block record 0
K_BLOCK_BYTES = 1  # from one block record to the next
K_RESIDENT = 2  # block records
K_QUEUE = 3  # address of the linear indices of the blocks to run
K_QUEUE_LENGTH = 4
K_QUEUE_NEXT = 5
K_ORDER = 6
K_VICTIM = 7
K_LANDING = 8
K_RANDOM = 9  # state of the generator, never 0
K_TIMED = 10
K_STOP = 11  # address of a flag that asks the core to stop
K_STEP_BUDGET = 12
K_FUEL = 13  # back edges a thread may take before it yields
K_LAST_WARP = 14  # warp of the previous turn, counted over the resident blocks
K_TURNS = 15
K_FAULT_BLOCK = 16  # address of the block record where the run ended
K_FAULT_THREAD = 17
K_CYCLES = 18  # latest clock of any finished block
K_LIVE_BLOCKS = 19
K_MEMORY_QUEUE = 20  # address of the queue of the SM's share of memory bandwidth
K_ISSUE_QUEUES = 21  # address of four queues, one for each scheduler
K_SECTORS = 22  # address of the tags of the first-level cache
K_LINES = 23  # address of the tags of the second-level cache
K_LATENCY = 24  # cycles from a request to global memory until its data, without queueing
K_L2_LATENCY = 25
K_L1_LATENCY = 26
K_BARRIER_CYCLES = 27
K_COLLECTIVE_CYCLES = 28
K_COPY_ISSUE_CYCLES = 29
K_LANDINGS = 30  # address of the log of copies, 0 = do not log
K_LANDINGS_COUNT = 31
K_LANDINGS_CAPACITY = 32
K_SEEN = 33  # address of one byte per site: what was already recorded there
K_NOTES = 34  # address of the notes (uninitialised reads, divisions by zero)
K_NOTES_COUNT = 35
K_NOTES_CAPACITY = 36
K_FORCED_LANDINGS = 37  # copies that landed early because the pool was full
K_BLOCK_CYCLES = 38  # address of (start, end) clocks by position in the queue, 0 = do not log
K_SPINS = 39  # turns in a row in which a warp only used up its fuel
# Slots by subject: happens_before 40 to 59, mbarriers and bulk copies 60 to 79, tensor cores 80 to
# 89, clock 90 to 119.
K_CHECK = 40  # CHECK_*: happens_before follows every access to this memory; 0 = none
K_CELL_SHIFT = 41  # a shadow cell stands for 1 << shift bytes
K_PROXIES = 42  # 1: the kernel has instructions of the async proxy
K_RACES = 43  # address of the race records
K_RACE_COUNT = 44
K_RACE_CAPACITY = 45
K_EXHAUSTED = 46  # 1: no memory left for what must be remembered
K_STARTS = 47  # check of global memory: address of each window's first byte in the shadow
K_TRAIL = 48  # address of the log of accesses to global memory
K_TRAIL_COUNT = 49
K_TRAIL_CAPACITY = 50
K_HANDS = 51  # address of (word, snapshot) pairs: what blocks have released to others
K_HAND_COUNT = 52
K_HAND_CAPACITY = 53
K_SNAPSHOTS = 54  # address of the youngest snapshot, 0 = none
K_PARTS = 55  # parts of a vector (see vector_clocks)
K_TRAIL_MOST = 56  # entries of the trail, at most
K_CHUNKS_MOST = 57  # chunks of read records of one block, at most
K_MATRIX_SCRATCH = 80  # address of floats in which operands are unpacked
K_TENSOR_FMA = 81  # multiply-adds of halves per cycle of the SM's tensor cores
K_TENSOR_FREE = 82  # cycle at which the tensor cores have done all that was issued
K_ACCUMULATORS = 83  # address of the findings about accumulator registers
K_ACCUMULATORS_COUNT = 84
K_ACCUMULATORS_CAPACITY = 85
K_BARRIER_WARP_CYCLES = 90  # what each warp adds to K_BARRIER_CYCLES
K_COPY_LATENCY = 91  # cycles by which a cp.async from HBM takes longer than a load
K_SHARE_QUEUE = 92  # address of the queue of the SM's share of HBM
K_CROWD_DELAY = 95  # cycles that a request waits where HBM is half busy
K_WINDOW = 96  # number of the span of time in which K_WINDOW_BYTES were asked for
K_WINDOW_BYTES = 97  # bytes of HBM asked for in it
K_FORMER_BYTES = 98  # and in the span before
K_WINDOW_CAPACITY = 99  # bytes of HBM that the SM's share has in one span
K_COMPULSORY = 100  # bytes that this SM must fetch from HBM: its part of all arrays
K_FETCHED = 101  # bytes that it has fetched from there
K_BURST_CYCLES = 94  # how long a quiet SM may have saved up its share
K_SHARED_QUEUE = 102  # address of the queue of the shared-memory unit
K_ACCESSES = 103  # address of the notes of a warp's accesses to shared memory, by lane
K_ACCESS_SCRATCH = 104  # address of what shared_unit counts with
ACCESS_SCRATCH_SLOTS = 128 + 32 * 32  # its parts: shared_unit.LEFT to WORDS
K_SHUFFLE_CYCLES = 105  # from a shuffle's issue to its value
K_MBARRIER_CYCLES = 106  # from an arrival at an mbarrier until a waiting thread sees it
K_WGMMA_LATENCY = 107  # from the end of a wgmma in the tensor cores until a wait ends
K_SLOTS = 128

# --- race records (order of the fields of races.RACE_TYPE) ------------------------------------
RACE_FIRST_SITE, RACE_FIRST_KIND, RACE_SECOND_SITE, RACE_SECOND_KIND, RACE_MISSING = range(5)
RACE_COUNT, RACE_BLOCK, RACE_OFFSET, RACE_BYTES = range(5, 9)
RACE_FIRST_THREAD, RACE_FIRST_GROUP, RACE_FIRST_SOURCE = range(9, 12)
RACE_SECOND_THREAD, RACE_SECOND_GROUP, RACE_SECOND_SOURCE, RACE_FILL = range(12, 16)
RACE_SLOTS = 16

# --- record of a warpgroup (wgmma) ------------------------------------------------------------
G_ISSUED = 0  # wgmma instructions that some thread has issued
G_COMPLETE = 1  # that all of its threads have issued
G_DONE = 2  # that are computed
G_ALLOCATED = 3  # registers in flight ever handed out, per thread
G_COLUMN = 4  # column of its groups + 1 (checked run), 0 = none yet
G_VALUES = 5  # address of the accumulators in flight: 128 floats for each register
G_TILES = 6  # address of what each register in flight belongs to (TILE_*)
G_PENDING = 7  # address of a ring of instructions (PEND_*)
G_ENDS = 8  # address of a ring by group: instructions issued up to its end
G_CLOCKS = 9  # address of a ring by instruction: cycle at which it is complete
G_HELD = 10  # address of operands A that come from registers, one for each place of the ring
G_SLOTS = 16
WARPGROUP_BYTES = G_SLOTS * 8
FLIGHT = 1024  # registers in flight per thread: a thread has 255, and warps may be a step apart
PENDING = 64
GROUP_RING = 256
SCRATCH_FLOATS = 64 * 16 + 16 * 256

TILE_FIRST, TILE_N, TILE_GROUP, TILE_SITE, TILE_SLOTS = 0, 1, 2, 3, 4
(
    PEND_A, PEND_B, PEND_SHAPE, PEND_SITE, PEND_GROUP, PEND_FIRST, PEND_FROM, PEND_ARRIVED,
    PEND_CLOCK, PEND_SLOTS,
) = range(10)  # fmt: skip

# --- findings about accumulators ----------------------------------------------------------------
(
    ACC_KIND, ACC_SITE, ACC_FIRST_SITE, ACC_BLOCK, ACC_THREAD, ACC_GROUP, ACC_COUNT, ACC_SLOTS,
) = range(8)  # fmt: skip
ACC_EARLY, ACC_UNFENCED = 1, 2

ORDERS = {"round_robin": 0, "one_last": 1, "one_first": 2, "random": 3, "timed": 4}
ROUND_ROBIN, ONE_LAST, ONE_FIRST, RANDOM_ORDER, TIMED_ORDER = 0, 1, 2, 3, 4
LANDINGS = {"early": 0, "late": 1, "random": 2}
LAND_EARLY, LAND_LATE, LAND_RANDOM = 0, 1, 2

# --- how a core's run ended -----------------------------------------------------------------
DONE, FAULT, DEADLOCK, BUDGET, STOPPED, DIVERGENT, BAD_MASK, BAD_BARRIER = range(8)
EXHAUSTED = 40  # a checked run found no memory for what it must remember

# --- bandwidth queue: a ring of buckets in time ---------------------------------------------
Q_CAPACITY = 0  # units that one bucket takes
Q_TAGS = 1  # address: bucket number that each place of the ring stands for
Q_USED = 2  # address: units taken
Q_SKIP = 3  # address: for a full bucket, the next one that may have room
Q_SLOTS = 4
QUEUE_BYTES = Q_SLOTS * 8
BUCKET_CYCLES = 32
WINDOW_BITS = 12  # 4,096 cycles: some iterations of a loop over tiles
RING_BUCKETS = 1 << 13  # 262,144 cycles: longer than any wait in a queue

# --- cache tags -----------------------------------------------------------------------------
SECTOR_BITS = 5  # 32-byte sectors: what L2 gives at a time
SECTORS = 4096  # of the first level: 128 KB
S_TAG, S_ISSUED, S_READY, S_SLOTS = 0, 1, 2, 4
LINE_BITS = 7
LINES = 1 << 15  # of the second level, as one SM sees it: 4 MB of 128-byte lines
COALESCE_CYCLES = 256  # a warp's lanes run one after another, but issue together

# --- notes: what does not end a run ---------------------------------------------------------
NOTE_KIND = 0
NOTE_SITE = 1
NOTE_BLOCK = 2  # linear
NOTE_THREAD = 3
NOTE_OFFSET = 4
NOTE_BYTES = 5
NOTE_COPY_SITE = 6  # site of the copy in flight to that place, -1 = none
NOTE_COPY_THREAD = 7
# Of N_MEETING: the warps at NOTE_SITE and at the other site as bit masks, and that other site.
NOTE_WARPS, NOTE_OTHER_WARPS, NOTE_OTHER_SITE = NOTE_OFFSET, NOTE_BYTES, NOTE_COPY_SITE
NOTE_SLOTS = 8
N_UNINITIALISED, N_DIVISION, N_MEETING = 1, 2, 4

# --- log of copies (order of the fields of launch.LANDING_TYPE) -----------------------------
LOG_SLOTS = 7  # block, warp, shared offset, global address, site, issued, landed

# --- step budget: what counts as how many steps ---------------------------------------------
YIELD_STEPS = 10  # a yield costs 8 to 10 ns, about as much as 10 turns of a small loop

# --- mbarriers and bulk copies ------------------------------------------------------------------
# Thread record.
T_BULK_GROUP = T_RUNTIME + 12  # number of the bulk group that is open for new copies
T_BULK_PENDING = T_RUNTIME + 13  # this thread's bulk stores that have not completed
T_BULK_COLUMN = T_RUNTIME + 14  # its column of the happens-before clocks, -1 = none yet
T_BULK_READY = T_RUNTIME + 15  # virtual cycle at which its latest bulk store has read its source
T_COPY_COMMITTED = T_RUNTIME + 16  # copies of groups below this one are committed

# Block record.
B_MBARRIERS = B_RUNTIME + 60  # address of mbarrier record 0, 0 = this kernel has none
B_MBARRIER_CAPACITY = B_RUNTIME + 61
B_MBARRIER_COUNT = B_RUNTIME + 62
B_MBARRIER_INDEX = B_RUNTIME + 63  # address of one int64 per 8 shared bytes: record number + 1
B_MBARRIER_EVENTS = B_RUNTIME + 64  # changes so far that may wake somebody
B_PARKED = B_RUNTIME + 65  # lanes that wait for a phase
B_IDLE_POLLS = B_RUNTIME + 66  # polls in a row that were answered "not yet" without any change
B_BULKS = B_RUNTIME + 67  # address of bulk copy record 0
B_BULK_CAPACITY = B_RUNTIME + 68
B_BULK_COUNT = B_RUNTIME + 69  # bulk copies in flight, in the order of their issue
B_TENSOR_WORK = B_RUNTIME + 70  # address of room for one row of a tensor copy

# Record of one mbarrier.
M_OFFSET = 0  # in shared memory
M_EXPECTED = 1  # arrivals of each phase
M_PENDING = 2  # arrivals that this phase still lacks
M_TX = 3  # bytes expected and not landed; negative: landed and not expected yet
M_PHASE = 4  # phases completed
M_NEXT_EXPECTED = 5  # arrivals of the next phase (arrive_drop lowers it)
M_CLOCK = 6  # virtual cycle of this phase's latest arrival or landing
M_READY = 7  # virtual cycle at which the last phase completed
M_SITE = 8  # where it was initialised
M_COLUMN = 9  # phases whose copies have all landed
M_CURRENT = 10  # vector of this phase's arrivals
M_COMPLETED = 11  # first of KEPT_PHASES vectors: the first k phases, at index k % KEPT_PHASES
M_INIT_THREAD = 12
M_ALIVE = 13  # 0 after mbarrier.inval
M_PROMISED = 14  # bytes that expect_tx has announced in this phase
M_FLYING = 15  # bytes of issued copies that have not landed
M_LAST_SITE = 16  # the last arrival
M_COUNTED = 17  # column of the phases that are over
M_SLOTS = 18
MBARRIER_BYTES = M_SLOTS * 8
KEPT_PHASES = 8  # what a wait learns is told apart for so many phases back
MAX_MBARRIERS = 4096

# Record of one bulk copy in flight.
BULK_KIND = 0
BULK_SHARED = 1  # offset in shared memory
BULK_GLOBAL = 2  # host address; of a tensor copy, of its map
BULK_BYTES = 3
BULK_MBARRIER = 4  # record number, -1 = none
BULK_THREAD = 5
BULK_GROUP = 6
BULK_SITE = 7
BULK_READY_CLOCK = 8
BULK_X, BULK_Y, BULK_Z = 9, 10, 11
BULK_BASE = 12  # host address of a tensor copy's array
BULK_SLOTS = 14
BULK_RECORD_BYTES = BULK_SLOTS * 8
MAX_BULKS = 4096
BULK_LOAD, BULK_STORE, BULK_TENSOR_LOAD, BULK_TENSOR_STORE = 0, 1, 2, 3

# Warp record (W_SLOTS has room).
W_PARKED = 5  # lanes that wait for a phase of an mbarrier
W_EVENTS = 6  # B_MBARRIER_EVENTS when they were last looked at

# Answers of the run-time to translated code; negative ones are faults.
MB_NONE, MB_TOO_MANY_ARRIVALS, MB_BAD_COUNT, MB_MISALIGNED, MB_OUTSIDE = -1, -2, -3, -4, -5
MB_TX_RANGE, MB_FULL = -6, -7
BULK_MISALIGNED, BULK_BAD_SIZE, BULK_OUTSIDE, BULK_NO_MAP, BULK_FULL = -20, -21, -22, -23, -24
BULK_BAD_COLUMN, BULK_NEGATIVE = -25, -26
TOKEN_BITS = 24  # a state token is the phase, above the arrivals that were pending
IDLE_POLLS = 2000  # rounds of polling without change after which nobody will ever come
