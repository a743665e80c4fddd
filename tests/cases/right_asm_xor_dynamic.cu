// title: cp.async in inline PTX, stage offset flipped by XOR, dynamic shared memory
// problem: TileReduction.of_tiles(6, 1, tile_elements=1024, threads=128)
// verdict: right
// shared: 2*4096
// source: own
extern __shared__ __align__(128) unsigned char memory[];

__device__ __forceinline__ void copy16(unsigned target, const void* source) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target), "l"(source) : "memory");
}

extern "C" __global__ void flip(const unsigned* x, unsigned* out, int tiles) {
    const uint4* from = (const uint4*)(x + (size_t)blockIdx.x * tiles * 1024) + threadIdx.x;
    const unsigned base = (unsigned)__cvta_generic_to_shared(memory);
    unsigned write = base + threadIdx.x * 16;
    unsigned read = 0;
    copy16(write, from);
    copy16(write + 2048, from + 128);
    asm volatile("cp.async.commit_group;" ::: "memory");
    for (int t = 0; t < tiles; ++t) {
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        write ^= 4096;
        from += 256;
        if (t + 1 < tiles) {
            copy16(write, from);
            copy16(write + 2048, from + 128);
            asm volatile("cp.async.commit_group;" ::: "memory");
        }
        const uint4* tile = (const uint4*)(memory + read);
        uint4 a = tile[threadIdx.x ^ 37], b = tile[255 - threadIdx.x];
        atomicAdd(out + blockIdx.x * tiles + t, a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w);
        read ^= 4096;
    }
}
