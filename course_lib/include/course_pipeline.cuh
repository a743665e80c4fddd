// Tensor maps, mbarriers, bulk tensor copies and warpgroup matrix instructions in one line each.
//
// For NVRTC, where cuda.h does not compile and cuda/ptx takes 0.4 s; sm_90a. Each function is one
// instruction of the PTX ISA, so what a kernel orders stands in the kernel.
#pragma once

// 128 bytes that course_lib.tensor_maps fills: pass it as `const __grid_constant__ TensorMap`.
struct alignas(64) TensorMap {
  unsigned long long opaque[16];
};

// An address in shared memory as instructions want it: 32 bits.
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// --- mbarrier ------------------------------------------------------------------------------------

using mbarrier = unsigned long long;

// By one thread; then mbarrier_init_fence() and a barrier of the block, before anyone uses it.
__device__ __forceinline__ void mbarrier_init(mbarrier* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(mbarrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

// Arrive, and expect so many bytes of bulk copies in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect(mbarrier* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

// Wait until the phase of this parity is complete: 0 for the first phase, then 1, then 0, ...
__device__ __forceinline__ void mbarrier_wait(mbarrier* barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// --- tensor copies -------------------------------------------------------------------------------

// Copy the map's box that begins at (row, column) into shared memory, and its bytes to the barrier.
__device__ __forceinline__ void copy_box(void* stage, const TensorMap* map, mbarrier* barrier,
                                         int row, int column) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(stage)),
      "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row)
      : "memory");
}

// Ordinary writes to shared memory before this are seen by bulk copies and wgmma after it.
__device__ __forceinline__ void proxy_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// --- wgmma ---------------------------------------------------------------------------------------

// Descriptor of an operand whose rows lie along k in 128-byte swizzle, as copy_box leaves them from
// a box of 64 halves: groups of 8 rows, 1024 bytes apart. The stage is aligned to 1024 bytes.
__device__ __forceinline__ unsigned long long wgmma_descriptor(const void* operand) {
  unsigned long long address = shared_address(operand);
  return ((address & 0x3FFFF) >> 4) | (1ull << 16) | ((1024ull >> 4) << 32) | (1ull << 62);
}

// Before the first wgmma, and whenever its accumulators were read or changed.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Wait until at most `pending` of the youngest groups are not complete.
template <int pending = 0>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Registers of a warpgroup: one that copies needs few, one that multiplies many.
template <int registers>
__device__ __forceinline__ void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

// sums += A · Bᵀ of 64 x 16 halves of A and width x 16 of B, by descriptors; width = 64, 128, 192 or 256.
// sums[4*j + i] of lane l in warp w of the warpgroup is element
//   (16*w + l/4 + 8*(i/2), 8*j + 2*(l%4) + i%2).
template <int width>
__device__ __forceinline__ void wgmma(float (&sums)[width / 2], unsigned long long a,
                                      unsigned long long b);

#define COURSE_R8(d, k) \
  "+f"(d[k]), "+f"(d[k + 1]), "+f"(d[k + 2]), "+f"(d[k + 3]), "+f"(d[k + 4]), "+f"(d[k + 5]), \
      "+f"(d[k + 6]), "+f"(d[k + 7])
#define COURSE_R32(d, k) \
  COURSE_R8(d, k), COURSE_R8(d, k + 8), COURSE_R8(d, k + 16), COURSE_R8(d, k + 24)
template <>
__device__ __forceinline__ void wgmma<64>(float (&sums)[32], unsigned long long a,
                                           unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, 1, 1, 1, 0, 0;"
      : COURSE_R32(sums, 0)
      : "l"(a), "l"(b));
}

template <>
__device__ __forceinline__ void wgmma<128>(float (&sums)[64], unsigned long long a,
                                           unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, 1, 1, 1, 0, 0;"
      : COURSE_R32(sums, 0),
        COURSE_R32(sums, 32)
      : "l"(a), "l"(b));
}

template <>
__device__ __forceinline__ void wgmma<192>(float (&sums)[96], unsigned long long a,
                                           unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
      "}, %96, %97, 1, 1, 1, 0, 0;"
      : COURSE_R32(sums, 0),
        COURSE_R32(sums, 32),
        COURSE_R32(sums, 64)
      : "l"(a), "l"(b));
}

template <>
__device__ __forceinline__ void wgmma<256>(float (&sums)[128], unsigned long long a,
                                           unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
      "}, %128, %129, 1, 1, 1, 0, 0;"
      : COURSE_R32(sums, 0),
        COURSE_R32(sums, 32),
        COURSE_R32(sums, 64),
        COURSE_R32(sums, 96)
      : "l"(a), "l"(b));
}

#undef COURSE_R32
#undef COURSE_R8
