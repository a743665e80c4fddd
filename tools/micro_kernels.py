"""Micro-kernels that calibrate the virtual clock: each measures one property of an SM.

None of them has a pipeline, a tile or a matrix product: the kernels that judge the clock
(`tools.judge_clock`) must not have tuned it. Every kernel times itself with `clock64()` and writes
elapsed cycles to `out[blockIdx.x]`.
"""

from __future__ import annotations

CHASE = r"""
// One thread follows a chain: each load needs the value of the one before.
extern "C" __global__ void chase(const unsigned* next, long long* out, int steps) {
  unsigned at = 0;
  for (int warm = 0; warm < WARM; warm++)
    for (int k = 0; k < steps; k++)
      asm volatile(LOAD " %0, [%1];" : "=r"(at) : "l"(next + at) : "memory");
  if (at == 0xffffffffu) out[1] = 1;  // or the assembler drops the warm-up
  at = 0;
  long long start = clock64();
  for (int k = 0; k < steps; k++)
    asm volatile(LOAD " %0, [%1];" : "=r"(at) : "l"(next + at) : "memory");
  long long end = clock64();
  out[0] = end - start + (at == 0xffffffffu);
}
"""

SHARED_CHASE = r"""
extern "C" __global__ void shared_chase(long long* out, int steps) {
  __shared__ unsigned chain[256];
  unsigned base = (unsigned)__cvta_generic_to_shared(chain);
  for (int k = 0; k < 256; k++) chain[k] = base + (k + 33) % 256 * 4;
  unsigned at = base;
  long long start = clock64();
  #pragma unroll 16
  for (int k = 0; k < steps; k++)
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(at) : "r"(at) : "memory");
  long long end = clock64();
  out[0] = end - start + (at == 0);
}
"""

# BODY is one instruction on register a[k]; CHAINS of them are independent of each other. PLACE is
# the byte that a lane reads in shared memory.
ISSUE = r"""
extern "C" __global__ void issue(long long* out, int steps) {
  __shared__ __align__(16) unsigned words[8192];
  for (int k = threadIdx.x; k < 8192; k += blockDim.x) words[k] = 0;
  unsigned base = (unsigned)__cvta_generic_to_shared(words);
  unsigned lane = threadIdx.x % 32;
  unsigned address = base + (threadIdx.x / 32) % 4 * 4096 + PLACE;
  unsigned a[CHAINS], u[CHAINS], v[CHAINS], w[CHAINS];
  float f[CHAINS];
  float c = 1.0f + steps * 1e-9f;
  for (int k = 0; k < CHAINS; k++) {
    a[k] = threadIdx.x + k; f[k] = a[k]; u[k] = v[k] = w[k] = 0;
  }
  __syncthreads();
  long long start = clock64();
  for (int s = 0; s < steps; s++) {
    #pragma unroll
    for (int r = 0; r < 8; r++) {
      #pragma unroll
      for (int k = 0; k < CHAINS; k++) { BODY; }
    }
  }
  long long end = clock64();
  unsigned sink = 0;
  for (int k = 0; k < CHAINS; k++)
    sink += a[k] + u[k] + v[k] + w[k] + __float_as_uint(f[k]);
  if (sink == 0x12345) out[1000] = 1;
  __syncthreads();
  if (threadIdx.x == 0) out[0] = end - start;
}
"""
BODIES = {
    "fma": 'asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(f[k]) : "f"(c))',
    "imad": 'asm volatile("mad.lo.u32 %0, %0, %1, %1;" : "+r"(a[k]) : "r"(lane))',
    "iadd": 'asm volatile("add.u32 %0, %0, %1;" : "+r"(a[k]) : "r"(lane))',
    # Pairs that the assembler cannot merge: they tell which instructions share a pipe.
    "xor_add": 'asm volatile("xor.b32 %0, %0, %1; add.u32 %0, %0, %1;" : "+r"(a[k]) : "r"(lane))',
    "xor_mad": (
        'asm volatile("xor.b32 %0, %0, %1; mad.lo.u32 %0, %0, %1, %1;" : "+r"(a[k]) : "r"(lane))'
    ),
    "xor_shl": 'asm volatile("xor.b32 %0, %0, %1; shl.b32 %0, %0, %1;" : "+r"(a[k]) : "r"(lane))',
    "shfl": 'asm volatile("shfl.sync.bfly.b32 %0, %0, 1, 31, -1;" : "+r"(a[k]))',
    # The words are 0, which the assembler cannot know: each address needs the load before.
    "lds32": (
        'asm volatile("ld.shared.u32 %0, [%1];" : "=r"(u[k]) : "r"(address + u[k]) : "memory")'
    ),
    "lds128": (
        'asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a[k]), "=r"(u[k]), '
        '"=r"(v[k]), "=r"(w[k]) : "r"(address + u[k]) : "memory")'
    ),
    "syncthreads": "__syncthreads()",
    "syncwarp": "__syncwarp()",
    "ex2": 'asm volatile("ex2.approx.f32 %0, %0;" : "+f"(f[k]))',
    "rcp": 'asm volatile("rcp.approx.f32 %0, %0;" : "+f"(f[k]))',
}

MBARRIER = r"""
extern "C" __global__ void mbarrier(long long* out, int steps) {
  __shared__ __align__(8) unsigned long long bar;
  unsigned b = (unsigned)__cvta_generic_to_shared(&bar);
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(b), "r"(blockDim.x) : "memory");
  __syncthreads();
  long long start = clock64();
  for (int s = 0; s < steps; s++) {
    asm volatile(
      "{ .reg .b64 t; .reg .pred p;\n"
      "mbarrier.arrive.shared.b64 t, [%0];\n"
      "again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
      "@!p bra again; }" :: "r"(b), "r"(s & 1) : "memory");
  }
  long long end = clock64();
  if (threadIdx.x == 0) out[0] = end - start;
}
"""

COPY_LATENCY = r"""
// One cp.async of 16 bytes for each of the block's threads: its issue, and until it has landed.
extern "C" __global__ void copy_latency(const char* x, long long* out, int steps) {
  __shared__ __align__(16) char stage[COUNT * 16 * 32];
  unsigned to = (unsigned)__cvta_generic_to_shared(stage) + threadIdx.x * 16;
  long long issue = 0, total = 0;
  for (int s = 0; s < steps; s++) {
    const char* from = x + (long long)s * JUMP + threadIdx.x * 16;
    long long a = clock64();
    #pragma unroll
    for (int k = 0; k < COUNT; k++)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                   :: "r"(to + k * 512), "l"(from + k * 512) : "memory");
    long long b = clock64();
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
    long long c = clock64();
    issue += b - a;
    total += c - a;
  }
  if (threadIdx.x == 0) { out[0] = total; out[1] = issue; }
}
"""

BULK_LATENCY = r"""
extern "C" __global__ void bulk_latency(const char* x, long long* out, int steps) {
  extern __shared__ __align__(128) char stage[];
  __shared__ __align__(8) unsigned long long bar;
  unsigned b = (unsigned)__cvta_generic_to_shared(&bar);
  unsigned to = (unsigned)__cvta_generic_to_shared(stage);
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(b) : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  long long total = 0, issue = 0;
  for (int s = 0; s < steps; s++) {
    long long a = clock64();
    asm volatile("{ .reg .b64 t;\n"
      "mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1; }" :: "r"(b), "r"(BYTES) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" :: "r"(to), "l"(x + (long long)s * JUMP), "r"(BYTES), "r"(b)
      : "memory");
    long long c = clock64();
    asm volatile("{ .reg .pred p;\n"
      "again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
      "@!p bra again; }" :: "r"(b), "r"(s & 1) : "memory");
    total += clock64() - a;
    issue += c - a;
  }
  out[0] = total; out[1] = issue;
}
"""

STREAM = r"""
// Reads `bytes` per block with DEPTH groups of blockDim.x * 16 bytes in flight; uses none of it.
extern "C" __global__ void stream(const char* x, long long* out, int groups, long long span) {
  extern __shared__ __align__(128) char stage[];
  unsigned to = (unsigned)__cvta_generic_to_shared(stage) + threadIdx.x * 16;
  const int group = blockDim.x * 16;
  long long at = (long long)blockIdx.x * groups * group % span + threadIdx.x * 16;
  __syncthreads();
  long long start = clock64();
  for (int g = 0; g < groups; g++) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\ncp.async.commit_group;"
                 :: "r"(to + g % DEPTH * group), "l"(x + at) : "memory");
    asm volatile("cp.async.wait_group %0;" :: "n"(DEPTH - 1) : "memory");
    at += group;
    if (at >= span) at -= span;
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = clock64() - start;
}
"""

BULK_STREAM = r"""
// The same by bulk copies of CHUNK bytes, DEPTH of them in flight, issued by one thread.
extern "C" __global__ void bulk_stream(const char* x, long long* out, int groups, long long span) {
  extern __shared__ __align__(128) char stage[];
  __shared__ __align__(8) unsigned long long bars[DEPTH];
  unsigned bar = (unsigned)__cvta_generic_to_shared(bars);
  unsigned to = (unsigned)__cvta_generic_to_shared(stage);
  for (int k = 0; k < DEPTH; k++)
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(bar + 8 * k) : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  long long at = (long long)blockIdx.x * groups * CHUNK % span;
  long long start = clock64();
  for (int g = 0; g < groups + DEPTH; g++) {
    unsigned b = bar + g % DEPTH * 8;
    if (g >= DEPTH)
      asm volatile("{ .reg .pred p;\n"
        "again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
        "@!p bra again; }" :: "r"(b), "r"((g / DEPTH - 1) & 1) : "memory");
    if (g < groups) {
      asm volatile("{ .reg .b64 t;\n"
        "mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1; }" :: "r"(b), "r"(CHUNK) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1], %2, [%3];" :: "r"(to + g % DEPTH * CHUNK), "l"(x + at), "r"(CHUNK), "r"(b)
        : "memory");
      at += CHUNK;
      if (at >= span) at -= span;
    }
  }
  out[blockIdx.x] = clock64() - start;
}
"""

CLOCK = r"""
extern "C" __global__ void clock_rate(long long* out, int steps) {
  long long t0, t1;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t0));
  long long start = clock64();
  while (clock64() - start < (long long)steps * 1000) { }
  long long end = clock64();
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t1));
  if (threadIdx.x == 0) { out[0] = end - start; out[1] = t1 - t0; }
}
"""

EMPTY = 'extern "C" __global__ void empty(long long* out) { if (out == nullptr) out[0] = 0; }'


def wgmma_source(n: int) -> str:
    """Back-to-back m64nNk16 products of half floats from shared memory, one chain a warpgroup."""
    count = n // 2
    registers = ", ".join(f"%{k}" for k in range(count))
    outputs = ", ".join(f'"+f"(d[{k}])' for k in range(count))
    return f"""
extern "C" __global__ void wgmma(long long* out, int steps) {{
  extern __shared__ __align__(1024) char stage[];
  for (int k = threadIdx.x; k < 40960 / 4; k += blockDim.x) ((unsigned*)stage)[k] = 0;
  unsigned base = (unsigned)__cvta_generic_to_shared(stage);
  unsigned long long a = ((base & 0x3ffff) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
  unsigned long long b = a + (8192 >> 4);
  float d[{count}];
  for (int k = 0; k < {count}; k++) d[k] = 0;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  long long start = clock64();
  for (int s = 0; s < steps; s++) {{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    #pragma unroll
    for (int r = 0; r < 4; r++)
      asm volatile("wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16 {{{registers}}}, "
        "%{count}, %{count + 1}, 1, 1, 1, 0, 0;" : {outputs} : "l"(a + r * 2), "l"(b + r * 2));
    asm volatile("wgmma.commit_group.sync.aligned;\\nwgmma.wait_group.sync.aligned 0;"
                 ::: "memory");
  }}
  long long end = clock64();
  float sum = 0;
  for (int k = 0; k < {count}; k++) sum += d[k];
  if (sum == 12345) out[1000] = 1;
  if (threadIdx.x == 0) out[0] = end - start;
}}
""".replace("int r = 0; r < 4; r++", "int r = 0; r < CHAINED; r++")
