// All-reduce in two hops over pinned host memory, for GPUs that cannot reach
// each other: write the shards of the others to the host once, read the own
// shard of every peer, write its sum, read the other sums. All ranks see one
// region, packs[rank], laid out by source.
// Each rank writes bytes and reads 2 (RANKS - 1) / RANKS x bytes.
extern "C" __global__ void __launch_bounds__(THREADS_MAX) host_staged(const __grid_constant__ Arguments a) {
    Call call = begin(a);
    u64 count = (a.elements + 7) / 8;
    u64 shard = (count + RANKS - 1) / RANKS;
    u64 host = a.packs[a.rank] + call.packs_half;
    u64 sums = host + RANKS * count * 16;
    Slice part = slice(shard);
    for (u64 i = part.from + threadIdx.x; i < part.to; i += blockDim.x) {
        uint4 v[RANKS];
#pragma unroll
        for (u32 r = 0; r < RANKS; r++)
            if (r != a.rank && r * shard + i < count) v[r] = load_elements8(a.input, r * shard + i, a.elements);
#pragma unroll
        for (u32 r = 0; r < RANKS; r++)
            if (r != a.rank && r * shard + i < count) store_pack(host + (a.rank * count + r * shard + i) * 16, v[r]);
    }
    exchange_flags(a, call, 0);
    for (u64 i = part.from + threadIdx.x; i < part.to; i += blockDim.x) {
        u64 at = a.rank * shard + i;
        if (at >= count) break;
        Sum8 sum;
        uint4 own = load_elements8(a.input, at, a.elements);
        uint4 v[RANKS];
#pragma unroll
        for (u32 r = 0; r < RANKS; r++) v[r] = r == a.rank ? own : load_pack(host + (r * count + at) * 16);
#pragma unroll
        for (u32 r = 0; r < RANKS; r++) {
            if (r == 0) sum.set(v[r]);
            else sum.add(v[r]);
        }
        uint4 total = sum.get();
        store_elements8(a.output, at, a.elements, total);
        store_pack(sums + at * 16, total);
    }
    exchange_flags(a, call, 1);
    for (u64 i = part.from + threadIdx.x; i < part.to; i += blockDim.x) {
        uint4 v[RANKS];
#pragma unroll
        for (u32 r = 0; r < RANKS; r++)
            if (r != a.rank && r * shard + i < count) v[r] = load_pack(sums + (r * shard + i) * 16);
#pragma unroll
        for (u32 r = 0; r < RANKS; r++)
            if (r != a.rank && r * shard + i < count) store_elements8(a.output, r * shard + i, a.elements, v[r]);
    }
    finish(a, call);
}
