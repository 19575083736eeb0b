// All-reduce in one hop with 8-byte packets (4 of data, 4 of flag), after
// MSCCL++'s all-pair packet kernel: each warp pushes the block's part to one
// peer, then all threads sum what arrived. Each rank sends (RANKS - 1) x 2 x bytes.
// Needs at least RANKS - 1 warps a block.
extern "C" __global__ void __launch_bounds__(THREADS_MAX) packet_all_pair(const __grid_constant__ Arguments a) {
    Call call = begin(a);
    u64 count = (a.elements + 1) / 2;
    Slice part = slice(count);
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 teams = blockDim.x / 32 / (RANKS - 1);
    u32 team = warp / (RANKS - 1);
    u32 peer = peer_at(a.rank, 1 + warp % (RANKS - 1));
    if (team < teams)
        for (u64 i = part.from + team * 32 + lane; i < part.to; i += teams * 32)
            store_packet(a.lines[peer] + call.lines_half + (a.rank * count + i) * 8, load_word(a.input, i, a.elements), call.epoch);
    for (u64 i = part.from + threadIdx.x; i < part.to; i += blockDim.x) {
        u64 first = a.lines[a.rank] + call.lines_half + i * 8;
        u32 own = load_word(a.input, i, a.elements);
        uint2 v[RANKS];
#pragma unroll
        for (u32 r = 0; r < RANKS; r++)
            if (r != a.rank) v[r] = load_packet(first + r * count * 8);
        for (u32 polls = 1; !call.failed; polls++) {
            u32 missing = RANKS, seen = 0;
#pragma unroll
            for (u32 r = 0; r < RANKS; r++)
                if (r != a.rank && v[r].y != call.epoch) {
                    missing = r;
                    seen = v[r].y;
                    v[r] = load_packet(first + r * count * 8);
                }
            if (missing == RANKS) break;
            if (polls % POLLS_PER_CHECK == 0) expired(a, call, missing, 0, i, seen);
        }
        Sum2 sum;
#pragma unroll
        for (u32 r = 0; r < RANKS; r++) {
            u32 x = r == a.rank ? own : v[r].x;
            if (r == 0) sum.set(x);
            else sum.add(x);
        }
        store_word(a.output, i, a.elements, sum.get());
    }
    finish(a, call);
}
