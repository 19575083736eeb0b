// Each thread has DEPTH independent 16-byte loads in flight. cycles[0] = until
// all have returned; cycles[1] keeps them alive.
#ifndef DEPTH
#define DEPTH 4
#endif
extern "C" __global__ void reads_in_flight(u64 source, u64 cycles) {
    __syncthreads();
    long long start = clock64();
    uint4 v[DEPTH];
#pragma unroll
    for (u32 i = 0; i < DEPTH; i++) v[i] = load_pack(source + ((u64)i * blockDim.x + threadIdx.x) * 16);
    u32 all = 0;
#pragma unroll
    for (u32 i = 0; i < DEPTH; i++) all |= v[i].x | v[i].y | v[i].z | v[i].w;
    if (__syncthreads_or(all == 0x9e3779b9u)) ((volatile u64 *)cycles)[1] = all;
    if (threadIdx.x == 0) ((volatile u64 *)cycles)[0] = (u64)(clock64() - start);
}
