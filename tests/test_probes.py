"""Clock stamps: they land where they should, assemble, and change nothing of what a kernel does."""

from __future__ import annotations

import re

import numpy as np
import pytest

from course_lib import ptxas
from course_lib.kernel import compile_kernel
from course_lib.ptx import probe_records, probes
from course_lib.ptx.parse import split_operands
from course_lib.ptx.statements import find_entry
from course_lib.virtual_gpu.launch import launch

TWO_STAGE = r"""
#include <cuda_pipeline.h>
#define TILE 4096
extern "C" __global__ void __launch_bounds__(256)
two_stage(const unsigned* __restrict__ x, unsigned* out, int tiles) {
  __shared__ __align__(16) unsigned stage[2][TILE];
  int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
  const unsigned* base = x + (size_t)blockIdx.x * tiles * TILE;
  auto load = [&](int t) {
    if (t < tiles)
      for (int i = 0; i < TILE / 4 / 256; i++)
        __pipeline_memcpy_async(&stage[t % 2][(i * 256 + tid) * 4],
                                base + (size_t)t * TILE + (i * 256 + tid) * 4, 16);
    __pipeline_commit();
  };
  load(0);
  load(1);
  for (int t = 0; t < tiles; t++) {
    __pipeline_wait_prior(1);
    __syncthreads();
    unsigned sum = 0;
    for (int i = 0; i < TILE / 256; i++) sum += stage[t % 2][warp * (TILE / 8) + i * 32 + lane];
    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
    if (lane == 0) atomicAdd(&out[(size_t)blockIdx.x * tiles + t], sum);
    __syncthreads();
    load(t + 2);
  }
}
"""
COPY_LINE, COMMIT_LINE, WAIT_LINE, READ_LINE = 12, 14, 19, 22

NO_PARAMETERS = """
__device__ unsigned answer;
extern "C" __global__ void k() {
  __shared__ unsigned s[32];
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) answer = s[31];
}
"""

POLLING = r"""
extern "C" __global__ void k(const float* x, float* y, int n) {
  __shared__ __align__(128) float s[1024];
  __shared__ unsigned long long bar;
  unsigned b = (unsigned)__cvta_generic_to_shared(&bar);
  unsigned d = (unsigned)__cvta_generic_to_shared(s);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(b) : "memory");
  __syncthreads();
  #pragma unroll 1
  for (int t = 0; t < n; t++) {
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 4096;" :: "r"(b) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                   "[%0], [%1], 4096, [%2];" :: "r"(d), "l"(x + t * 1024), "r"(b) : "memory");
    }
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @p bra D; "
                 "bra W; D: }" :: "r"(b), "r"(t & 1) : "memory");
    y[t * blockDim.x + threadIdx.x] = s[threadIdx.x];
    __syncthreads();
  }
}
"""

# A guard per copy, an inner loop that stays a loop, a call that stays a call, a predicated wait.
AWKWARD = r"""
__device__ __noinline__ float twice(float v) { return v * 2; }
extern "C" __global__ void k(const float* x, float* y, int rows, int n) {
  extern __shared__ float s[];
  int i = threadIdx.x;
  unsigned d = (unsigned)__cvta_generic_to_shared(s + i * 4);
  for (int r = 0; r < 4; r++)
    if (r * 128 + i < rows)
      asm volatile("{ .reg .pred q; setp.ne.s32 q, %2, 0; "
                   "@q cp.async.cg.shared.global [%0], [%1], 16; }"
                   :: "r"(d + r * 2048), "l"(x + r * 512 + i * 4), "r"(n) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("{ .reg .pred q; setp.eq.s32 q, %0, 0; @!q cp.async.wait_group 0; }"
               :: "r"(n) : "memory");
  __syncthreads();
  float sum = 0;
  #pragma unroll 1
  for (int k = 0; k < n; k++) sum += s[(i + k) % 512];
  y[blockIdx.x * blockDim.x + i] = twice(sum);
}
"""


def _kinds(probed):
    return [site.kind for site in probed.sites]


@pytest.fixture(scope="module")
def two_stage():
    kernel = compile_kernel(TWO_STAGE, threads=256)
    return kernel, probes.stamp(kernel.ptx(), kernel.module, kernel.name)


def test_sites_of_the_two_stage_kernel(two_stage):
    _, probed = two_stage
    prologue = ["copy", "commit"] * 2
    steady = ["wait", "barrier", "read", "barrier", "copy", "commit"]
    assert _kinds(probed) == [*prologue, *steady, "exit"]
    assert [site.index for site in probed.sites] == list(range(1, 12))
    lines = {site.kind: site.cell_line for site in probed.sites}
    assert lines["copy"] == COPY_LINE and lines["commit"] == COMMIT_LINE
    assert lines["wait"] == WAIT_LINE and lines["read"] == READ_LINE
    # The wait ends where the barrier begins, and the barrier where the first read is.
    assert probed.aliases == {(6, 0): (5, 1), (7, 0): (6, 1)}
    assert probed.notes == ()


def test_only_marked_lines_are_added(two_stage):
    kernel, probed = two_stage
    parts = re.split(r"// probe begin\n.*?// probe end", probed.text, flags=re.DOTALL)
    stripped = re.sub(r",\s*\.param \.u64 probe0_.*?(?=\n\))", "", "".join(parts), flags=re.DOTALL)
    assert stripped.split() == kernel.ptx().split()


@pytest.mark.parametrize("source", [TWO_STAGE, NO_PARAMETERS, POLLING, AWKWARD])
def test_assembles(source):
    kernel = compile_kernel(source)
    probed = probes.stamp(kernel.ptx(), kernel.module, kernel.name)
    made = ptxas.assemble(probed.text, kernel.arch)
    assert made.kernels[kernel.name].spill_bytes == 0
    assert made.kernels[kernel.name].registers <= kernel.resources.registers + 16
    # Stamping what is stamped works too: the names do not clash.
    twice = probes.stamp(probed.text, None, kernel.name)
    assert ptxas.assemble(twice.text, kernel.arch).cubin


def test_runs_are_stamped_once():
    kernel = compile_kernel(AWKWARD)
    probed = probes.stamp(kernel.ptx(), kernel.module, kernel.name)
    copies = [site for site in probed.sites if site.kind == "copy"]
    assert len(copies) == 4  # one per guard: the run-time bit lets one of them write
    bits = re.findall(r"and\.b32 %probe0_scratch, %probe0_bits, (\d+);", probed.text)
    assert bits.count("1") == 4 and "2" in bits  # the reads of the loop have another bit
    assert "twice" in probed.notes[0]


def test_guards_are_respected():
    kernel = compile_kernel(AWKWARD)
    text = probes.stamp(kernel.ptx(), kernel.module, kernel.name).text
    wait = text[: text.index("cp.async.wait_group")].rsplit("// probe begin", 1)[1]
    assert re.search(r"selp\.b32 %probe0_scratch, 0, 1, \w+;", wait)
    assert re.search(r"@%probe0_now st\.global", wait)


def test_a_spinning_wait_is_one_interval():
    kernel = compile_kernel(POLLING)
    probed = probes.stamp(kernel.ptx(), kernel.module, kernel.name)
    assert _kinds(probed).count("wait") == 1
    after = probed.text[probed.text.index("mbarrier.try_wait") :]
    after = after[: after.index("// probe end")]
    assert re.search(r"and\.pred %probe0_now, %probe0_now, p;", after)
    assert after.count("st.global.v2.u32") == 2


@pytest.mark.parametrize("source", [TWO_STAGE, POLLING, AWKWARD])
def test_the_parser_tells_probes_from_the_kernel(source):
    kernel = compile_kernel(source)
    own = list(kernel.module.functions[kernel.name].instructions)
    stamped = kernel.rewritten(probes.stamp(kernel.ptx(), kernel.module, kernel.name).text)
    kept = [i for i in stamped.module.functions[kernel.name].instructions if not i.probe]
    assert [i.opcode for i in kept] == [i.opcode for i in own]
    lines = [stamped.module.site_of(i).cell_line for i in kept]
    assert lines == [kernel.module.site_of(i).cell_line for i in own]


def test_no_parameters():
    kernel = compile_kernel(NO_PARAMETERS)
    probed = probes.stamp(kernel.ptx(), kernel.module, kernel.name)
    assert len(re.findall(r"\.param ", probed.text)) == probes.EXTRA_PARAMETERS
    assert _kinds(probed)[:2] == ["store", "barrier"]


def test_no_such_kernel(two_stage):
    with pytest.raises(KeyError, match="ring"):
        probes.stamp(two_stage[0].ptx(), None, "ring")


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("cp.async.ca.shared.global.L2::128B", "copy"),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes",
            "copy",
        ),
        ("cp.async.bulk.global.shared::cta.bulk_group", None),
        ("cp.async.bulk.prefetch.L2.global", None),
        ("cp.async.bulk.commit_group", "commit"),
        ("cp.async.bulk.wait_group.read", "wait"),
        ("cp.async.wait_all", "wait"),
        ("cp.async.mbarrier.arrive.noinc.shared::cta.b64", "arrive"),
        ("mbarrier.test_wait.shared.b64", "wait"),
        ("mbarrier.arrive.expect_tx.shared.b64", "arrive"),
        ("mbarrier.init.shared.b64", None),
        ("bar.sync", "barrier"),
        ("barrier.cta.sync", "barrier"),
        ("bar.arrive", "arrive"),
        ("bar.warp.sync", None),
        ("ld.global.nc.v4.u32", "load"),
        ("ld.shared::cluster.u32", "read"),
        ("ld.param.u64", None),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "read"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16", "read"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.global.f16", None),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", None),
        ("wmma.store.d.sync.aligned.row.m16n16k16.shared.f32", "store"),
        ("wmma.store.d.sync.aligned.row.m16n16k16.global.f16", None),
        ("stmatrix.sync.aligned.m8n8.x4.shared.b16", "store"),
        ("st.shared.v4.f32", "store"),
        ("st.global.u32", None),
        ("ret", "exit"),
    ],
)
def test_kind_of(opcode, kind):
    assert probes.kind_of(opcode) == kind


def test_statements_of_inline_assembly():
    text = (
        ".visible .entry k(.param .u64 a)\n{\n.reg .pred %p<2>;\n.loc 1 2 3\n// x; y\n"
        "{ .reg .pred q; W: mbarrier.try_wait.shared.b64 q, [%r1], %r2; @!q bra W; }\n"
        "st.global.v2.u32 [%rd1], {%r1, %r2}; ret;\n}\n.section .x { }\n"
    )
    entry = find_entry(text, "k")
    kinds = [s.kind for s in entry.statements]
    assert kinds == ["directive", "open", "directive", "label"] + ["instruction"] * 2 + [
        "close",
        "instruction",
        "instruction",
    ]
    branch = entry.statements[5]
    assert (branch.opcode, branch.guard, branch.negated) == ("bra", "q", True)
    assert [text[s.start : s.end] for s in entry.statements[-2:]] == [
        "st.global.v2.u32 [%rd1], {%r1, %r2};",
        "ret;",
    ]
    assert split_operands("[%r1], [%rd2, {%r3, %r4}], 16") == [
        "[%r1]",
        "[%rd2, {%r3, %r4}]",
        "16",
    ]


# --- on the virtual GPU


def _run_stamped(kernel, grid, arguments, warps, **how):
    """Runs a stamped kernel on the virtual GPU; the decoded stamps of block 0."""
    probed = probes.stamp(kernel.ptx(), kernel.module, kernel.name)
    buffer = probes.allocate(np, 1, warps, 512)
    extra = (buffer, np.uint32(512), np.uint32(1), np.uint32(1000))
    stamped = kernel.rewritten(probed.text, probes.EXTRA_PARAMETERS)
    result = launch(stamped, grid, [*arguments, *extra], **how)
    assert result.ok, result.errors
    return probes.decode(buffer, probed), probed


@pytest.mark.parametrize("how", [{}, {"order": "timed"}])
def test_a_stamped_kernel_computes_the_same(two_stage, how):
    tiles, blocks = 5, 3
    x = np.random.default_rng(7).integers(0, 2**32, blocks * tiles * 4096, dtype=np.uint32)
    out = np.zeros(blocks * tiles, np.uint32)
    kernel, _ = two_stage
    decoded, probed = _run_stamped(kernel, (blocks,), [x, out, np.int32(tiles)], 8, **how)
    assert np.array_equal(out, x.reshape(-1, 4096).sum(axis=1, dtype=np.uint32))
    _check_events(decoded, probed, tiles)


def _check_events(decoded, probed, tiles):
    """What lane 0 of warp 3 of block 0 must have gone through, in this order."""
    events = decoded.events[decoded.events["warp"] == 3]
    kinds = [(probed.site(e["site"]).kind, int(e["phase"])) for e in events]
    copy, tail = [("copy", 0), ("commit", 1)], [("commit", 1)]
    body = [("wait", 0), ("wait", 1), ("barrier", 0), ("barrier", 1), ("read", 0)]
    body += [("barrier", 0), ("barrier", 1)]
    expected = [*copy, *copy]
    for tile in range(tiles):
        expected += body + (copy if tile + 2 < tiles else tail)
    assert kinds == [*expected, ("exit", 0)]
    assert set(decoded.events["block"]) == {0} and decoded.truncated == ()
    assert (np.diff(events["clock"]) >= 0).all()
    copies = events[[kind == "copy" for kind, _ in kinds]]
    # On the virtual GPU every array begins at a multiple of 2**40.
    assert (copies["global_address"] // 16384).tolist() == list(range(tiles))
    stages = copies["shared"].astype(int) - int(copies["shared"].min())
    assert stages.tolist() == [16384 * (tile % 2) for tile in range(tiles)]


def test_stamps_cost_nothing_on_the_virtual_clock(two_stage):
    kernel, probed = two_stage
    x, numbers = np.zeros(2 * 4096, np.uint32), [np.int32(2)]
    plain = launch(kernel, (1,), [x, np.zeros(2, np.uint32), *numbers], order="timed")
    extra = (probes.allocate(np, 1, 8, 64), np.uint32(64), np.uint32(1), np.uint32(1))
    stamped = kernel.rewritten(probed.text, probes.EXTRA_PARAMETERS)
    again = launch(stamped, (1,), [x, np.zeros(2, np.uint32), *numbers, *extra], order="timed")
    assert again.cycles == plain.cycles > 1000


@pytest.mark.parametrize("rows", [0, 130, 512])
def test_awkward_control_flow_computes_the_same(rows):
    kernel = compile_kernel(AWKWARD, threads=128, shared_bytes=8192)
    x = np.arange(2048, dtype=np.float32)
    plain, stamped = np.zeros(128, np.float32), np.zeros(128, np.float32)
    numbers = [np.int32(rows), np.int32(3)]
    if rows < 512:  # what was never copied is uninitialised, and must stay out of the comparison
        numbers[1] = np.int32(0)
    assert launch(kernel, (1,), [x, plain, *numbers]).ok
    decoded, probed = _run_stamped(kernel, (1,), [x, stamped, *numbers], 4)
    assert np.array_equal(plain, stamped)
    first = [probed.site(e["site"]).kind for e in decoded.events if e["warp"] == 0]
    assert first.count("copy") == (1 if rows == 512 else 0)
    assert first.count("read") == (
        1 if rows == 512 else 0
    )  # one run, though the loop turns 3 times
    assert first.count("wait") == (2 if rows == 512 else 0)


# --- decoding


def _probed(*kinds, aliases=()):
    sites = tuple(probes.ProbeSite(i + 1, kind, None, kind, 0) for i, kind in enumerate(kinds))
    return probes.ProbedPtx("", "k", sites, dict(aliases))


def _records(*rows, capacity=8):
    buffer = probes.allocate(np, 1, 1, capacity)
    for i, row in enumerate(rows):
        buffer[0, 0, i] = row
    return buffer


def test_decode_unwraps_the_clock_and_writes_out_aliases():
    header = (0xFFFFFF00, probes.HEADER_MARK, 7, 132)
    records = _records(header, (0xFFFFFFF0, 1 << 1, 0, 0), (0x10, 2 << 1, 96, 5))
    decoded = probes.decode(records, _probed("barrier", "read", aliases={(2, 0): (1, 1)}))
    events = decoded.events
    assert events["site"].tolist() == [1, 1, 2] and events["phase"].tolist() == [
        0,
        1,
        0,
    ]
    assert events["clock"].tolist() == [0xF0, 0x110, 0x110]
    assert events["order"].tolist() == [0, 1, 2]
    assert events["shared"].tolist() == [0, 0, 96]
    assert events["global_address"].tolist() == [0, 0, 80]
    assert set(events["block"]) == {132} and set(events["sm"]) == {7}
    assert decoded.entries["clock"].tolist() == [0] and decoded.truncated == ()


def test_decode_drops_and_reports_what_ran_out():
    header = (5, probes.HEADER_MARK, 0, 0)
    records = _records(header, (6, 2, 0, 0), (7, 2, 0, 0), (99, 2, 0, 0), capacity=4)
    decoded = probes.decode(records, _probed("barrier"))
    assert decoded.truncated == ((0, 0),)
    assert decoded.events["clock"].tolist() == [1, 2]


def test_decode_of_warps_that_never_ran():
    decoded = probes.decode(probes.allocate(np, 2, 3, 4), _probed("barrier"))
    assert len(decoded.events) == len(decoded.entries) == 0


def test_a_wait_recorded_late_keeps_its_time():
    # Both records of a polled wait are written at its end; another stamp may lie between.
    records = _records(
        (100, probes.HEADER_MARK, 0, 0),
        (150, 2 << 1, 0, 0),
        (120, 1 << 1, 0, 0),
        (180, 3, 0, 0),
    )
    assert probes.decode(records, _probed("wait", "read")).events["clock"].tolist() == [
        50,
        20,
        80,
    ]


def test_locate():
    arrays = {"x": (0x7F0000001000, 4096), "out": (0x7F0000003008, 64)}
    low = [
        (a >> 4 << 4) & ((1 << 36) - 1) for a in (0x7F0000001000, 0x7F0000001FFC, 0x7F0000003008)
    ]
    names, offsets = probes.locate([*low, 0, 0x123450], arrays)
    assert names == ["x", "x", "out", "", ""]
    assert offsets.tolist() == [0, 4080, 0, -1, -1]


def test_the_buffer_crosses_no_4_gib_line():
    class Space:
        """NumPy with the addresses that a test wants."""

        uint32 = np.uint32

        def zeros(self, count, dtype):
            return np.zeros(count, dtype)

    for start in (0x1_0000_0000 - 4096, 0x1_0000_0000 - 64, 0x2_0000_0010):
        begin = _allocated_at(Space(), start)
        assert begin % 64 == 0
        assert begin >> 32 == (begin + 2 * 4 * 64 * 16 - 1) >> 32


def _allocated_at(space, start):
    real, seen = probe_records.address_of, {}

    def pretended(array):
        seen["base"] = real(array)
        return start

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe_records, "address_of", pretended)
        made = probes.allocate(space, 2, 4, 64)
    return start + real(made) - seen["base"]


def test_too_many_records():
    with pytest.raises(ValueError, match="fewer blocks"):
        probes.allocate(np, 1 << 10, 32, 1 << 14)
