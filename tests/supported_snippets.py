"""One small kernel for each row of the tables in docs/virtual_gpu.md.

``BODIES`` holds statements of a kernel in which ``v`` is the thread's number (0 to 127) and ``r``
is what it returns; beside it what ``r`` must be, from ``v``, where that is plain to say.
``HEADERS`` holds whole kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

Expected = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Snippet:
    """Statements (or a whole source), and the values that they must give, if that is said."""

    text: str
    expected: Expected | None = None
    whole: bool = False
    includes: tuple[str, ...] = field(default=())

    @property
    def source(self) -> str:
        """The kernel, called ``k``, whose parameter is ``unsigned* out``."""
        if self.whole:
            return self.text
        head = "".join(f"#include <{name}>\n" for name in self.includes)
        return f"""{head}extern "C" __global__ void k(unsigned* out) {{
  __shared__ __align__(1024) unsigned shared[1024];
  __shared__ __align__(8) unsigned long long bar[2];
  const unsigned at = (unsigned)__cvta_generic_to_shared(shared), v = threadIdx.x;
  const unsigned bars = (unsigned)__cvta_generic_to_shared(bar);
  for (int i = v; i < 1024; i += 128) shared[i] = i;
  if (v < 2) bar[v] = at + bars & 0;
  __syncthreads();
  unsigned r = 0;
  {self.text}
  out[v] = r;
}}"""


def asm(text: str, expected: Expected | None = None) -> Snippet:
    """One piece of PTX: %0 is r, %1 is v, %2 the shared array, %3 two words for mbarriers."""
    lines = (
        f'asm volatile("{{{text}}}" : "+r"(r) : "r"(v), "r"(at), "r"(bars), "l"(out) : "memory");'
    )
    return Snippet(lines, expected)


def plain(text: str, expected: Expected | None = None, *includes: str) -> Snippet:
    """Statements in CUDA C++."""
    return Snippet(text, expected, includes=includes)


BODIES: dict[str, Snippet] = {
    "`add`, `sub`, `mul`, `mad`, `min`, `max`": asm(
        "mad.lo.u32 %0, %1, 3, 7;", lambda v: 3 * v + 7
    ),
    "`div`, `rem`": asm("rem.u32 %0, %1, 7;", lambda v: v % 7),
    "`shl`, `shr`, `shf`, `lop3`, `prmt`, `bfe`, `bfi`": asm(
        "bfe.u32 %0, %1, 2, 3;", lambda v: v >> 2 & 7
    ),
    "`dp4a`, `dp2a`": asm("dp4a.u32.u32 %0, %1, 2, 5;", lambda v: 2 * (v & 255) + 5),
    "video instructions (`vadd4`, …)": asm("vadd4.u32.u32.u32 %0, %1, %1, %1;"),
    "`f32` and `f64` arithmetic": plain("r = (unsigned)sqrtf((float)(v * v));", lambda v: v),
    "`f16`, `f16x2`, `bf16` arithmetic": plain(
        "r = (unsigned)__half2float(__hadd(__float2half(v), __float2half(1)));",
        lambda v: v + 1,
        "cuda_fp16.h",
    ),
    "`fp8` conversions": asm(
        ".reg .b16 h; .reg .f32 f; cvt.rn.f32.u32 f, %1; "
        "cvt.rn.satfinite.e4m3x2.f32 h, f, f; cvt.u32.u16 %0, h;"
    ),
    "`ld`, `st` of every space, vectors included": asm(
        ".reg .u32 a, b; ld.shared.v2.u32 {a, b}, [%2+8]; add.u32 %0, a, b;", lambda v: 5 + 0 * v
    ),
    "`atom`, `red`": plain(
        "atomicAdd(&shared[5], 1); __syncthreads(); r = shared[5];", lambda v: 133 + 0 * v
    ),
    "packed atomics (`red.add.noftz.f16x2`)": asm("red.global.add.noftz.f16x2 [%4], %1;"),
    "`fence`, `membar`": asm("fence.acq_rel.gpu; mov.u32 %0, 1;", lambda v: 0 * v + 1),
    "textures and surfaces (`tex`, `suld`)": asm(
        ".reg .u64 t; .reg .u32 a, b, c; mov.u64 t, 0; "
        "tex.1d.v4.u32.s32 {%0, a, b, c}, [t, {%1}];"
    ),
    "`cp.async`, `commit_group`, `wait_group`": asm(
        "cp.async.ca.shared.global [%2], [%4], 4; cp.async.commit_group; "
        "cp.async.wait_group 0; mov.u32 %0, 1;",
        lambda v: 0 * v + 1,
    ),
    "`bar`, `barrier` (named ones too), `bar.red`": asm(
        "bar.sync 1, 128; mov.u32 %0, 1;", lambda v: 0 * v + 1
    ),
    "`bar.warp.sync`, `shfl`, `vote`, `match`, `redux`": plain(
        "r = __shfl_sync(~0u, v, 3);", lambda v: v // 32 * 32 + 3
    ),
    "`elect`": asm(
        ".reg .pred p; elect.sync _|p, -1; selp.u32 %0, 1, 0, p;",
        lambda v: (v % 32 == 0).astype(np.uint32),
    ),
    "`setmaxnreg`": asm("setmaxnreg.dec.sync.aligned.u32 40; mov.u32 %0, 1;"),
    "`nanosleep`": asm("nanosleep.u32 20; mov.u32 %0, 1;", lambda v: 0 * v + 1),
    "`mbarrier`": plain(
        'if (v == 0) asm volatile("mbarrier.init.shared.b64 [%0], 128;" ::"r"(bars) : "memory");\n'
        "  __syncthreads();\n"
        '  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(bars) : "memory");\n'
        '  while (!r) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0;'
        ' selp.u32 %0, 1, 0, p;}" : "=r"(r) : "r"(bars) : "memory");',
        lambda v: 0 * v + 1,
    ),
    "`cp.async.mbarrier.arrive`": plain(
        'if (v == 0) asm volatile("mbarrier.init.shared.b64 [%0], 128;" ::"r"(bars) : "memory");\n'
        "  __syncthreads();\n"
        '  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bars) : "memory");'
    ),
    "`cp.async.bulk` between global and shared memory": asm(
        "cp.async.bulk.global.shared::cta.bulk_group [%4], [%2], 16; "
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
    ),
    "`cp.reduce.async.bulk`": asm(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%4], [%2], 16;"
    ),
    "`cp.async.bulk.prefetch`": asm("cp.async.bulk.prefetch.L2.global [%4], 16;"),
    "`ldmatrix`": asm("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%2];"),
    "`stmatrix`": asm("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%2], {%1};"),
    "`mma.sync` m16n8k16 of `f16` and `bf16`": asm(
        ".reg .f32 d, e, f, g; mov.f32 d, 0f00000000; mov.f32 e, d; mov.f32 f, d; mov.f32 g, d; "
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {d, e, f, g}, {%0, %0, %0, %0}, "
        "{%0, %0}, {d, e, f, g}; cvt.rzi.u32.f32 %0, d;"
    ),
    "`mma.sync` of integers": asm(
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %0}, {%1}, {%1}, {%0, %0};"
    ),
    "`wgmma`": asm(
        "wgmma.fence.sync.aligned; wgmma.commit_group.sync.aligned; "
        "wgmma.wait_group.sync.aligned 0; mov.u32 %0, 1;"
    ),
    "clusters (`barrier.cluster`)": asm("barrier.cluster.arrive; barrier.cluster.wait;"),
    "`printf`, `assert`, `trap`": plain('if (v == 500) printf("%u", v); r = v;', lambda v: v),
    "function pointers": plain(
        "unsigned (*f)(unsigned) = out[5] > 3 ? __brev : (unsigned (*)(unsigned))__clz; r = f(v);"
    ),
    "`%tid`, `%ntid`, `%ctaid`, `%nctaid`, `%laneid`": asm(
        "mov.u32 %0, %%laneid;", lambda v: v % 32
    ),
    "`%warpid`, `%smid`, `%nsmid`": asm("mov.u32 %0, %%warpid;", lambda v: v // 32),
    "`%clock64`, `%globaltimer`": asm("mov.u32 %0, %%clock;"),
    "`%lanemask_lt` and the like": asm(
        "mov.u32 %0, %%lanemask_lt;", lambda v: (1 << v % 32) - 1
    ),
    "`%dynamic_smem_size`, `%total_smem_size`": asm("mov.u32 %0, %%dynamic_smem_size;"),
    "`%cluster_ctarank` (always 0)": asm("mov.u32 %0, %%cluster_ctarank;", lambda v: 0 * v),
    "`%envreg0`": asm("mov.u32 %0, %%envreg0;"),
    "`%pm0`": asm("mov.u32 %0, %%pm0;"),
}  # fmt: skip


def whole(includes: str, body: str, expected: Expected | None = None) -> Snippet:
    """A kernel of one body after its includes."""
    head = "".join(f"#include <{name}>\n" for name in includes.split())
    text = f'{head}extern "C" __global__ void k(unsigned* out) {{\n  {body}\n}}\n'
    return Snippet(text, expected, whole=True)


HEADERS: dict[str, Snippet] = {
    "`<cuda_pipeline.h>`": whole(
        "cuda_pipeline.h",
        "__shared__ unsigned s[128];"
        " __pipeline_memcpy_async(&s[threadIdx.x], &out[threadIdx.x], 4);"
        " __pipeline_commit(); __pipeline_wait_prior(0); out[threadIdx.x] = s[threadIdx.x] + 2;",
        lambda v: 0 * v + 2,
    ),
    "`<cuda_fp16.h>`": whole(
        "cuda_fp16.h",
        "out[threadIdx.x] = (unsigned)__half2float(__float2half(threadIdx.x) * __half(2));",
        lambda v: 2 * v,
    ),
    "`<cuda_bf16.h>`": whole(
        "cuda_bf16.h",
        "out[threadIdx.x] = (unsigned)__bfloat162float(__float2bfloat16(threadIdx.x));",
        lambda v: v,
    ),
    "`<cooperative_groups.h>`": whole(
        "cooperative_groups.h",
        "namespace cg = cooperative_groups;"
        " auto tile = cg::tiled_partition<16>(cg::this_thread_block());"
        " out[threadIdx.x] = tile.shfl(threadIdx.x, 1);",
        lambda v: v // 16 * 16 + 1,
    ),
    "`<cuda/ptx>`": whole(
        "cuda/ptx",
        "__shared__ uint64_t bar; if (threadIdx.x == 0) cuda::ptx::mbarrier_init(&bar, 128);"
        " __syncthreads(); cuda::ptx::mbarrier_arrive(&bar);"
        " while (!cuda::ptx::mbarrier_try_wait_parity(&bar, 0)) {} out[threadIdx.x] = 1;",
        lambda v: 0 * v + 1,
    ),
    "`<cuda/barrier>`": whole(
        "cuda/barrier",
        "__shared__ cuda::barrier<cuda::thread_scope_block> bar;"
        " if (threadIdx.x == 0) init(&bar, 128);"
        " __syncthreads(); bar.arrive_and_wait(); out[threadIdx.x] = 1;",
        lambda v: 0 * v + 1,
    ),
    "`<cuda/pipeline>` (of one thread)": whole(
        "cuda/pipeline",
        "__shared__ unsigned s[128]; auto pipe = cuda::make_pipeline(); pipe.producer_acquire();"
        " cuda::memcpy_async(&s[threadIdx.x], &out[threadIdx.x], cuda::aligned_size_t<4>(4), pipe);"
        " pipe.producer_commit(); pipe.consumer_wait(); out[threadIdx.x] = s[threadIdx.x] + 2;"
        " pipe.consumer_release();",
        lambda v: 0 * v + 2,
    ),
    "`<cuda/pipeline>` (of the block)": whole(
        "cuda/pipeline cooperative_groups.h",
        "__shared__ unsigned s[128]; auto block = cooperative_groups::this_thread_block();"
        " __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 1> state;"
        " auto pipe = cuda::make_pipeline(block, &state); pipe.producer_acquire();"
        " cuda::memcpy_async(block, s, out, sizeof s, pipe); pipe.producer_commit();"
        " pipe.consumer_wait(); out[threadIdx.x] = s[threadIdx.x] + 2; pipe.consumer_release();",
        lambda v: 0 * v + 2,
    ),
    "`<cuda/atomic>`": whole(
        "cuda/atomic",
        "cuda::atomic_ref<unsigned, cuda::thread_scope_device> word(out[threadIdx.x]);"
        " word.fetch_add(3);",
        lambda v: 0 * v + 3,
    ),
    "`<mma.h>`": whole(
        "mma.h cuda_fp16.h",
        "__shared__ float c[256]; using namespace nvcuda::wmma;"
        " fragment<accumulator, 16, 16, 16, float> f; fill_fragment(f, 2.f);"
        " store_matrix_sync(c, f, 16, mem_row_major); __syncthreads();"
        " out[threadIdx.x] = (unsigned)c[threadIdx.x];",
        lambda v: 0 * v + 2,
    ),
}  # fmt: skip
