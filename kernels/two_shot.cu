// All-reduce in two hops with flags: push each shard to the rank that owns it,
// sum, push the sum to everyone. Each rank sends 2 (RANKS - 1) / RANKS x bytes.
extern "C" __global__ void __launch_bounds__(THREADS_MAX) two_shot(const __grid_constant__ Arguments a) {
    Call call = begin(a);
    u64 count = (a.elements + 7) / 8;
    u64 shard = (count + RANKS - 1) / RANKS;
    u64 gather = RANKS * shard * 16;   // where the second half of the region starts
    Slice part = slice(shard);
    for (u64 i = part.from + threadIdx.x; i < part.to; i += blockDim.x) {
        uint4 v[RANKS];
#pragma unroll
        for (u32 k = 1; k < RANKS; k++) {
            u64 at = peer_at(a.rank, k) * shard + i;
            if (at < count) v[k] = load_elements8(a.input, at, a.elements);
        }
#pragma unroll
        for (u32 k = 1; k < RANKS; k++) {
            u32 p = peer_at(a.rank, k);
            if (p * shard + i < count) store_pack(a.packs[p] + call.packs_half + (a.rank * shard + i) * 16, v[k]);
        }
    }
    exchange_flags(a, call, 0);
    for (u64 i = part.from + threadIdx.x; i < part.to; i += blockDim.x) {
        u64 at = a.rank * shard + i;
        if (at >= count) break;
        Sum8 sum;
        uint4 own = load_elements8(a.input, at, a.elements);
        uint4 v[RANKS];
#pragma unroll
        for (u32 r = 0; r < RANKS; r++) v[r] = r == a.rank ? own : load_pack(a.packs[a.rank] + call.packs_half + (r * shard + i) * 16);
#pragma unroll
        for (u32 r = 0; r < RANKS; r++) {
            if (r == 0) sum.set(v[r]);
            else sum.add(v[r]);
        }
        uint4 total = sum.get();
        store_elements8(a.output, at, a.elements, total);
#pragma unroll
        for (u32 k = 1; k < RANKS; k++) store_pack(a.packs[peer_at(a.rank, k)] + call.packs_half + gather + at * 16, total);
    }
    exchange_flags(a, call, 1);
    for (u64 i = part.from + threadIdx.x; i < part.to; i += blockDim.x) {
        uint4 v[RANKS];
#pragma unroll
        for (u32 r = 0; r < RANKS; r++)
            if (r != a.rank && r * shard + i < count) v[r] = load_pack(a.packs[a.rank] + call.packs_half + gather + (r * shard + i) * 16);
#pragma unroll
        for (u32 r = 0; r < RANKS; r++)
            if (r != a.rank && r * shard + i < count) store_elements8(a.output, r * shard + i, a.elements, v[r]);
    }
    finish(a, call);
}
