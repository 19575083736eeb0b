// Each thread stores `count` times 16 bytes, warps side by side, without
// waiting. cycles[0] = until the stores were issued, cycles[1] = until a fence
// says that they arrived.
extern "C" __global__ void stores_in_flight(u64 target, u32 count, u64 cycles) {
    __syncthreads();
    long long start = clock64();
    for (u32 i = 0; i < count; i++) store_pack(target + ((u64)i * blockDim.x + threadIdx.x) * 16, make_uint4(i, start, i, i));
    __syncthreads();
    long long issued = clock64();
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        ((volatile u64 *)cycles)[0] = (u64)(issued - start);
        ((volatile u64 *)cycles)[1] = (u64)(clock64() - start);
    }
}
