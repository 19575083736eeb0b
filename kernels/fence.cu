// `rounds` times: each thread stores 16 bytes at `target` (if `stores`), then
// one thread fences for the whole system. cycles[0] = all rounds.
extern "C" __global__ void fence(u64 target, u32 rounds, u32 stores, u64 cycles) {
    __syncthreads();
    long long start = clock64();
    for (u32 i = 0; i < rounds; i++) {
        if (stores) store_pack(target + threadIdx.x * 16, make_uint4(i, i, i, i));
        if (threadIdx.x == 0) asm volatile("fence.acq_rel.sys;" ::: "memory");
        __syncthreads();
    }
    if (threadIdx.x == 0) ((volatile u64 *)cycles)[0] = (u64)(clock64() - start);
}
