// All-reduce in one hop, data and flag in one store: every rank pushes all its
// lines to every peer, then sums the lines that arrived. No barrier, no fence.
// Each rank sends (RANKS - 1) x 2 x bytes.
extern "C" __global__ void __launch_bounds__(THREADS_MAX) one_shot_push_ll(const __grid_constant__ Arguments a) {
    Call call = begin(a);
    u64 count = (a.elements + 3) / 4;
    Slice part = slice(count);
    for (u64 i = part.from + threadIdx.x; i < part.to; i += blockDim.x) {
        uint2 own = load_elements4(a.input, i, a.elements);
#pragma unroll
        for (u32 k = 1; k < RANKS; k++) {
            u32 p = peer_at(a.rank, k);
            store_line(a.lines[p] + call.lines_half + (a.rank * count + i) * 16, own.x, own.y, call.epoch);
        }
    }
    for (u64 i = part.from + threadIdx.x; i < part.to; i += blockDim.x) {
        uint2 own = load_elements4(a.input, i, a.elements);
        uint2 sum = sum_lines(a, call, a.lines[a.rank] + call.lines_half + i * 16, count * 16, own, 0, i);
        store_elements4(a.output, i, a.elements, sum);
    }
    finish(a, call);
}
