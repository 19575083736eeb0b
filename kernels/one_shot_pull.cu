// All-reduce in one hop by reading: every rank publishes its data in its own
// memory, tells its peers by a flag, and reads theirs. The copy into the half
// of this call takes the place of a barrier at the end: a half is written
// again only after every peer has finished reading it, two calls ago.
// Each rank reads (RANKS - 1) x bytes.
extern "C" __global__ void __launch_bounds__(THREADS_MAX) one_shot_pull(const __grid_constant__ Arguments a) {
    Call call = begin(a);
    u64 count = (a.elements + 7) / 8;
    Slice part = slice(count);
    for (u64 i = part.from + threadIdx.x; i < part.to; i += blockDim.x)
        store_pack(a.packs[a.rank] + call.packs_half + i * 16, load_elements8(a.input, i, a.elements));
    exchange_flags(a, call, 0);
    for (u64 i = part.from + threadIdx.x; i < part.to; i += blockDim.x) {
        Sum8 sum;
        uint4 own = load_elements8(a.input, i, a.elements);
        uint4 v[RANKS];
#pragma unroll
        for (u32 r = 0; r < RANKS; r++) v[r] = r == a.rank ? own : load_pack(a.packs[r] + call.packs_half + i * 16);
#pragma unroll
        for (u32 r = 0; r < RANKS; r++) {
            if (r == 0) sum.set(v[r]);
            else sum.add(v[r]);
        }
        store_elements8(a.output, i, a.elements, sum.get());
    }
    finish(a, call);
}
