"""Device code that the tests of mbarriers, bulk copies and tensor copies share, and its launch."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from course_lib.kernel import Kernel, compile_kernel
from course_lib.virtual_gpu.launch import LaunchResult, launch

POLICIES = [
    {"landing": landing, "order": order, "seed": seed}
    for landing, order, seed in (
        ("early", "round_robin", 0), ("late", "one_last", 0), ("late", "one_first", 0),
        ("random", "random", 1), ("random", "random", 2), ("late", "timed", 0),
    )
]  # fmt: skip

PRELUDE = r"""
typedef unsigned long long u64;
typedef unsigned int u32;
struct alignas(64) TensorMap { u64 opaque[16]; };
__device__ __forceinline__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void init(u64* b, u32 n) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(n) : "memory");
}
__device__ __forceinline__ void expect(u64* b, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(at(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(u64* b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(b)) : "memory");
}
__device__ __forceinline__ bool try_wait(u64* b, u32 parity) {
    u32 done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
                 " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at(b)), "r"(parity) : "memory");
    return done;
}
__device__ __forceinline__ bool test_wait(u64* b, u32 parity) {
    u32 done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;"
                 " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at(b)), "r"(parity) : "memory");
    return done;
}
__device__ __forceinline__ void wait(u64* b, u32 parity) { while (!try_wait(b, parity)); }
__device__ __forceinline__ void bulk_load(void* to, const void* from, u32 bytes, u64* b) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];"
                 ::"r"(at(to)), "l"(from), "r"(bytes), "r"(at(b)) : "memory");
}
__device__ __forceinline__ void bulk_store(void* to, const void* from, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(to), "r"(at(from)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bulk_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int N> __device__ __forceinline__ void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}
template <int N> __device__ __forceinline__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
__device__ __forceinline__ void proxy_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
"""


@cache
def kernel_of(body: str, parameters: str, threads: int = 64, arch: str = "sm_90") -> Kernel:
    """`body` as a kernel `k(parameters)` behind the prelude."""
    source = f'{PRELUDE}extern "C" __global__ void k({parameters}) {{\n{body}\n}}'
    return compile_kernel(source, "k", threads=threads, arch=arch)


def run(
    body: str, parameters: str, arguments: list[Any], threads: int = 64, **how: Any
) -> LaunchResult:
    """Launch a body on the virtual GPU."""
    return launch(kernel_of(body, parameters, threads), how.pop("grid", 1), arguments, **how)


def line_of(body: str, text: str) -> int:
    """The line of the kernel's source on which `text` of the body stands."""
    before = PRELUDE.count("\n") + 1
    return before + next(n for n, line in enumerate(body.splitlines(), 1) if text in line)


def word(n: int = 64) -> np.ndarray:
    """Zeros for a kernel's results."""
    return np.zeros(n, np.uint32)
