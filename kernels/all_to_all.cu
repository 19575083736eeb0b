// All-to-all, data and flag in one store: row p of this rank's input goes to
// rank p, whose output row `rank` receives it. Rows are RANKS x `elements`,
// each starting at a multiple of 8 elements.
// Each rank sends (RANKS - 1) x 2 x bytes of a row.
extern "C" __global__ void __launch_bounds__(THREADS_MAX) all_to_all(const __grid_constant__ Arguments a) {
    Call call = begin(a);
    u64 count = (a.elements + 3) / 4;
    u64 row_bytes = (a.elements + 7) / 8 * 16;
    Slice part = slice(count);
#pragma unroll
    for (u32 k = 0; k < RANKS; k++) {
        u32 p = peer_at(a.rank, k);
        for (u64 i = part.from + threadIdx.x; i < part.to; i += blockDim.x) {
            uint2 v = load_elements4(a.input + p * row_bytes, i, a.elements);
            if (k == 0) store_elements4(a.output + p * row_bytes, i, a.elements, v);
            else store_line(a.lines[p] + call.lines_half + (a.rank * count + i) * 16, v.x, v.y, call.epoch);
        }
    }
#pragma unroll
    for (u32 k = 1; k < RANKS; k++) {
        u32 p = peer_at(a.rank, k);
        for (u64 i = part.from + threadIdx.x; i < part.to; i += blockDim.x) {
            uint2 v = wait_line(a, call, a.lines[a.rank] + call.lines_half + (p * count + i) * 16, p, 0, i);
            store_elements4(a.output + p * row_bytes, i, a.elements, v);
        }
    }
    finish(a, call);
}
