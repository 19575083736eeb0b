// Copies `count` packs of 16 bytes, four in flight a thread: bandwidth by
// number of blocks, between any two memories.
extern "C" __global__ void __launch_bounds__(1024) copy_packs(u64 source, u64 target, u64 count) {
    u64 stride = (u64)gridDim.x * blockDim.x;
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * stride < count; i += 4 * stride) {
        uint4 a = load_pack(source + i * 16), b = load_pack(source + (i + stride) * 16);
        uint4 c = load_pack(source + (i + 2 * stride) * 16), d = load_pack(source + (i + 3 * stride) * 16);
        store_pack(target + i * 16, a);
        store_pack(target + (i + stride) * 16, b);
        store_pack(target + (i + 2 * stride) * 16, c);
        store_pack(target + (i + 3 * stride) * 16, d);
    }
    for (; i < count; i += stride) store_pack(target + i * 16, load_pack(source + i * 16));
}
