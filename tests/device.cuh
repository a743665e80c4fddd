// What the litmus kernels and the tests of asynchronous copies share: PTX in one line each.
#define DEVICE __device__ __forceinline__
typedef unsigned u32;
typedef unsigned long long u64;
struct alignas(64) TensorMap { u64 opaque[16]; };
DEVICE u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// cp.async
DEVICE void copy16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(to)), "l"(from) : "memory");
}
DEVICE void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending> DEVICE void wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// Named barriers
DEVICE void bar_sync(int name, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}
DEVICE void bar_arrive(int name, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// Strong accesses to a word
DEVICE void st_release(u32* p, u32 v) {
    asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(at(p)), "r"(v) : "memory");
}
DEVICE void st_relaxed(u32* p, u32 v) {
    asm volatile("st.relaxed.cta.shared.u32 [%0], %1;" ::"r"(at(p)), "r"(v) : "memory");
}
DEVICE u32 ld_acquire(u32* p) {
    u32 v;
    asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(v) : "r"(at(p)) : "memory");
    return v;
}
DEVICE u32 ld_relaxed(u32* p) {
    u32 v;
    asm volatile("ld.relaxed.cta.shared.u32 %0, [%1];" : "=r"(v) : "r"(at(p)) : "memory");
    return v;
}
DEVICE void red_add(u32* p, u32 v) {
    asm volatile("red.relaxed.cta.shared.add.u32 [%0], %1;" ::"r"(at(p)), "r"(v) : "memory");
}

// mbarriers
DEVICE void init(u64* b, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(count) : "memory");
}
DEVICE void init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void arrive(u64* b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(b)) : "memory");
}
DEVICE void arrive_relaxed(u64* b) {
    asm volatile("mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%0];" ::"r"(at(b)) : "memory");
}
DEVICE void expect(u64* b, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(at(b)), "r"(bytes) : "memory");
}
DEVICE bool try_wait(u64* b, u32 parity) {
    u32 done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
                 " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at(b)), "r"(parity) : "memory");
    return done;
}
DEVICE bool test_wait(u64* b, u32 parity) {
    u32 done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;"
                 " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at(b)), "r"(parity) : "memory");
    return done;
}
DEVICE void wait(u64* b, u32 parity) { while (!try_wait(b, parity)); }
DEVICE u64 arrive_token(u64* b) {
    u64 token;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(at(b)) : "memory");
    return token;
}
DEVICE u64 drop_token(u64* b) {
    u64 token;
    asm volatile("mbarrier.arrive_drop.shared.b64 %0, [%1];" : "=l"(token) : "r"(at(b)) : "memory");
    return token;
}
DEVICE void wait_token(u64* b, u64 token) {
    u32 over = 0;
    while (!over)
        asm volatile("{.reg .pred p; mbarrier.try_wait.shared.b64 p, [%1], %2;"
                     "selp.u32 %0, 1, 0, p;}" : "=r"(over) : "r"(at(b)), "l"(token) : "memory");
}
DEVICE void arrive_behind_copies(u64* b) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at(b)) : "memory");
}

// Bulk copies and the async proxy
DEVICE void bulk_load(void* to, const void* from, u32 bytes, u64* b) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];"
                 ::"r"(at(to)), "l"(from), "r"(bytes), "r"(at(b)) : "memory");
}
DEVICE void bulk_store(void* to, const void* from, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(to), "r"(at(from)), "r"(bytes) : "memory");
}
DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int pending> DEVICE void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}
template <int pending> DEVICE void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
DEVICE void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
