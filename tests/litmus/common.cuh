// What the litmus kernels share: one-line wrappers of PTX. Kernels are called litmus(in, out).
typedef unsigned long long Mbarrier;
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// cp.async
__device__ void copy16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(to)), "l"(from) : "memory");
}
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending> __device__ void wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// Named barriers
__device__ void bar_sync(int name, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}
__device__ void bar_arrive(int name, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// Strong accesses to a word
__device__ void st_release(unsigned* p, unsigned v) {
    asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(at(p)), "r"(v) : "memory");
}
__device__ void st_relaxed(unsigned* p, unsigned v) {
    asm volatile("st.relaxed.cta.shared.u32 [%0], %1;" ::"r"(at(p)), "r"(v) : "memory");
}
__device__ unsigned ld_acquire(unsigned* p) {
    unsigned v;
    asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(v) : "r"(at(p)) : "memory");
    return v;
}
__device__ unsigned ld_relaxed(unsigned* p) {
    unsigned v;
    asm volatile("ld.relaxed.cta.shared.u32 %0, [%1];" : "=r"(v) : "r"(at(p)) : "memory");
    return v;
}

// mbarriers
__device__ void init(Mbarrier* b, unsigned count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at(b)), "r"(count) : "memory");
}
__device__ void arrive(Mbarrier* b) {
    asm volatile("{.reg .b64 t; mbarrier.arrive.shared.b64 t, [%0];}" ::"r"(at(b)) : "memory");
}
__device__ void arrive_relaxed(Mbarrier* b) {
    asm volatile("{.reg .b64 t; mbarrier.arrive.relaxed.cta.shared::cta.b64 t, [%0];}"
                 ::"r"(at(b)) : "memory");
}
__device__ void expect(Mbarrier* b, unsigned bytes) {
    asm volatile("{.reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1;}"
                 ::"r"(at(b)), "r"(bytes) : "memory");
}
__device__ void wait(Mbarrier* b, unsigned parity) {
    unsigned over = 0;
    while (!over)
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2;"
                     "selp.u32 %0, 1, 0, p;}" : "=r"(over) : "r"(at(b)), "r"(parity) : "memory");
}
__device__ unsigned long long arrive_token(Mbarrier* b) {
    unsigned long long token;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(at(b)) : "memory");
    return token;
}
__device__ unsigned long long drop_token(Mbarrier* b) {
    unsigned long long token;
    asm volatile("mbarrier.arrive_drop.shared.b64 %0, [%1];" : "=l"(token) : "r"(at(b)) : "memory");
    return token;
}
__device__ void wait_token(Mbarrier* b, unsigned long long token) {
    unsigned over = 0;
    while (!over)
        asm volatile("{.reg .pred p; mbarrier.try_wait.shared.b64 p, [%1], %2;"
                     "selp.u32 %0, 1, 0, p;}" : "=r"(over) : "r"(at(b)), "l"(token) : "memory");
}
__device__ void arrive_behind_copies(Mbarrier* b) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at(b)) : "memory");
}

// Bulk copies and the async proxy
__device__ void bulk_load(void* to, const void* from, unsigned bytes, Mbarrier* b) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];"
                 ::"r"(at(to)), "l"(from), "r"(bytes), "r"(at(b)) : "memory");
}
__device__ void bulk_store(void* to, const void* from, unsigned bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(to), "r"(at(from)), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
