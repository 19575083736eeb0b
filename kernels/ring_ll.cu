// All-reduce around a ring, data and flag in one store: RANKS - 1 hops that
// add, RANKS - 1 hops that copy, each moving one chunk to the next rank.
// Every step has slots of its own, so no credit flows back; a thread depends
// on the same thread of the previous rank alone, so there is no barrier.
// Partial sums travel in the element type, as in NCCL.
__device__ __forceinline__ u32 wrap(u32 rank, u32 back) { return (rank + 2 * RANKS - back) % RANKS; }

extern "C" __global__ void __launch_bounds__(THREADS_MAX) ring_ll(const __grid_constant__ Arguments a) {
    Call call = begin(a);
    Slice part = slice((a.elements + 3) / 4);
    u64 widest = ((a.elements + 3) / 4 + gridDim.x - 1) / gridDim.x;
    u64 chunk = (widest + RANKS - 1) / RANKS;
    u32 next = wrap(a.rank, RANKS - 1), previous = wrap(a.rank, 1);
    u64 mine = a.lines[a.rank] + call.lines_half + blockIdx.x * chunk * 16;
    u64 theirs = a.lines[next] + call.lines_half + blockIdx.x * chunk * 16;
    u64 step_bytes = gridDim.x * chunk * 16;
    for (u64 i = threadIdx.x; i < chunk; i += blockDim.x) {
        u64 at = part.from + a.rank * chunk + i;
        uint2 v = at < part.to ? load_elements4(a.input, at, a.elements) : make_uint2(0, 0);
        if (at < part.to) store_line(theirs + i * 16, v.x, v.y, call.epoch);
    }
#pragma unroll 1
    for (u32 step = 0; step < 2 * RANKS - 2; step++) {
        bool adds = step < RANKS - 1;
        u64 from = part.from + wrap(a.rank, adds ? step + 1 : step - (RANKS - 1)) * chunk;
        for (u64 i = threadIdx.x; i < chunk && from + i < part.to; i += blockDim.x) {
            uint2 v = wait_line(a, call, mine + step * step_bytes + i * 16, previous, step, from + i);
            if (adds) {
                Sum4 sum;
                sum.set(v);
                sum.add(load_elements4(a.input, from + i, a.elements));
                v = sum.get();
            }
            if (step < 2 * RANKS - 3) store_line(theirs + (step + 1) * step_bytes + i * 16, v.x, v.y, call.epoch);
            if (step >= RANKS - 2) store_elements4(a.output, from + i, a.elements, v);
        }
    }
    finish(a, call);
}
