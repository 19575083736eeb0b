// All-reduce in one hop, data and flag in one store: every rank pushes all its
// lines to every peer, then sums the lines that arrived. No barrier, no fence.
// A thread pushes TRIPS lines before it polls the first, so that they travel
// together. Each rank sends (RANKS - 1) x 2 x bytes.
#define TRIPS 2
extern "C" __global__ void __launch_bounds__(THREADS_MAX) one_shot_push_ll(const __grid_constant__ Arguments a) {
    Call call = begin(a);
    u64 count = (a.elements + 3) / 4;
    Slice part = slice(count);
    for (u64 base = part.from + threadIdx.x; base < part.to; base += TRIPS * blockDim.x) {
        uint2 own[TRIPS];
#pragma unroll
        for (u32 t = 0; t < TRIPS; t++)
            if (base + t * blockDim.x < part.to) own[t] = load_elements4(a.input, base + t * blockDim.x, a.elements);
#pragma unroll
        for (u32 t = 0; t < TRIPS; t++) {
            u64 i = base + t * blockDim.x;
            if (i < part.to) {
#pragma unroll
                for (u32 k = 1; k < RANKS; k++)
                    store_line(a.lines[peer_at(a.rank, k)] + call.lines_half + (a.rank * count + i) * 16, own[t].x, own[t].y, call.epoch);
            }
        }
#pragma unroll
        for (u32 t = 0; t < TRIPS; t++) {
            u64 i = base + t * blockDim.x;
            if (i < part.to)
                store_elements4(a.output, i, a.elements, sum_lines(a, call, a.lines[a.rank] + call.lines_half + i * 16, count * 16, own[t], 0, i));
        }
    }
    finish(a, call);
}
