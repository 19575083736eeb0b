// All-reduce in one hop as NCCL's symmetric AGxLL kernel schedules it: one
// trip at a time, each thread stores its line to all ranks, its own included,
// and polls all slots before the next trip. Parts are dealt in turn to blocks.
// Each rank sends (RANKS - 1) x 2 x bytes.
extern "C" __global__ void __launch_bounds__(THREADS_MAX) symmetric_ll(const __grid_constant__ Arguments a) {
    Call call = begin(a);
    u64 count = (a.elements + 3) / 4;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        uint2 own = load_elements4(a.input, i, a.elements);
#pragma unroll
        for (u32 k = 0; k < RANKS; k++) {
            u32 p = peer_at(a.rank, k);
            store_line(a.lines[p] + call.lines_half + (a.rank * count + i) * 16, own.x, own.y, call.epoch);
        }
        u64 first = a.lines[a.rank] + call.lines_half + i * 16;
        uint4 v[RANKS];
        u32 polls = 0;
        while (!call.failed) {
            u32 missing = RANKS, seen = 0;
#pragma unroll
            for (u32 r = 0; r < RANKS; r++) v[r] = load_line(first + r * count * 16);
#pragma unroll
            for (u32 r = 0; r < RANKS; r++)
                if (v[r].y != call.epoch || v[r].w != call.epoch) {
                    missing = r;
                    seen = v[r].y;
                }
            if (missing == RANKS) break;
            if (++polls % POLLS_PER_CHECK == 0) expired(a, call, missing, 0, i, seen);
        }
        Sum4 sum;
#pragma unroll
        for (u32 r = 0; r < RANKS; r++) {
            uint2 x = make_uint2(v[r].x, v[r].z);
            if (r == 0) sum.set(x);
            else sum.add(x);
        }
        store_elements4(a.output, i, a.elements, sum.get());
    }
    finish(a, call);
}
