// All-reduce in one hop with flags: every rank pushes plain data to every peer,
// one fence and one flag a block and peer, then sums what arrived.
// Each rank sends (RANKS - 1) x bytes.
extern "C" __global__ void __launch_bounds__(THREADS_MAX) one_shot_push(const __grid_constant__ Arguments a) {
    Call call = begin(a);
    u64 count = (a.elements + 7) / 8;
    Slice part = slice(count);
    for (u64 i = part.from + threadIdx.x; i < part.to; i += blockDim.x) {
        uint4 own = load_elements8(a.input, i, a.elements);
#pragma unroll
        for (u32 k = 1; k < RANKS; k++) {
            u32 p = peer_at(a.rank, k);
            store_pack(a.packs[p] + call.packs_half + (a.rank * count + i) * 16, own);
        }
    }
    exchange_flags(a, call, 0);
    for (u64 i = part.from + threadIdx.x; i < part.to; i += blockDim.x) {
        Sum8 sum;
        uint4 own = load_elements8(a.input, i, a.elements);
        uint4 v[RANKS];
#pragma unroll
        for (u32 r = 0; r < RANKS; r++) v[r] = r == a.rank ? own : load_pack(a.packs[a.rank] + call.packs_half + (r * count + i) * 16);
#pragma unroll
        for (u32 r = 0; r < RANKS; r++) {
            if (r == 0) sum.set(v[r]);
            else sum.add(v[r]);
        }
        store_elements8(a.output, i, a.elements, sum.get());
    }
    finish(a, call);
}
