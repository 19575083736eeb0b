// Proves that memory is reached: `write_pattern` fills words from a seed and
// fences; `read_pattern` counts the words that differ.
__device__ __forceinline__ u32 word_of(u32 seed, u64 index) {
    u32 x = seed ^ (u32)index * 0x9e3779b9u;
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    return x;
}

extern "C" __global__ void write_pattern(u64 at, u64 words, u32 seed) {
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += (u64)gridDim.x * blockDim.x)
        ((volatile u32 *)at)[i] = word_of(seed, i);
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

extern "C" __global__ void read_pattern(u64 at, u64 words, u32 seed, u64 wrong) {
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += (u64)gridDim.x * blockDim.x) {
        u32 v;
        asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at + i * 4) : "memory");
        if (v != word_of(seed, i)) atomicAdd((u32 *)wrong, 1u);
    }
}
