// All-reduce over islands of GROUP ranks (GPUs below one switch, say), data and
// flag in one store: reduce-scatter inside the island, exchange of the shard
// with the ranks of the same place in the other islands, all-gather inside.
// GROUP = RANKS is the two-shot all-reduce. Only shards cross islands:
// (RANKS / GROUP - 1) x 2 x bytes / GROUP a rank.
// A thread depends on the same thread of other ranks alone: no barrier.
#ifndef GROUP
#define GROUP RANKS
#endif
#define ISLANDS (RANKS / GROUP)

// Waits for `SOURCES` slots but `own`'s, all polls in flight, and sums in order.
template <u32 SOURCES>
__device__ __forceinline__ uint2 sum_slots(const Arguments &a, Call &call, u64 first, u64 stride, u32 own, uint2 value, u32 peer, u32 peer_stride, u32 phase, u64 index) {
    uint4 v[SOURCES];
#pragma unroll
    for (u32 s = 0; s < SOURCES; s++)
        if (s != own) v[s] = load_line(first + s * stride);
    for (u32 polls = 1; !call.failed; polls++) {
        u32 missing = SOURCES, seen = 0;
#pragma unroll
        for (u32 s = 0; s < SOURCES; s++)
            if (s != own && (v[s].y != call.epoch || v[s].w != call.epoch)) {
                missing = s;
                seen = v[s].y;
                v[s] = load_line(first + s * stride);
            }
        if (missing == SOURCES) break;
        if (polls % POLLS_PER_CHECK == 0) expired(a, call, peer + missing * peer_stride, phase, index, seen);
    }
    Sum4 sum;
#pragma unroll
    for (u32 s = 0; s < SOURCES; s++) {
        uint2 x = s == own ? value : make_uint2(v[s].x, v[s].z);
        if (s == 0) sum.set(x);
        else sum.add(x);
    }
    return sum.get();
}

extern "C" __global__ void __launch_bounds__(THREADS_MAX) hierarchical_ll(const __grid_constant__ Arguments a) {
    Call call = begin(a);
    u64 count = (a.elements + 3) / 4;
    u64 shard = (count + GROUP - 1) / GROUP;
    u32 island = a.rank / GROUP, place = a.rank % GROUP;
    u64 exchange = GROUP * shard * 16;                 // three parts of the region, one a phase
    u64 gather = exchange + ISLANDS * shard * 16;
    u64 mine = a.lines[a.rank] + call.lines_half;
    Slice part = slice(shard);
    // All loads before the first store: a store waits for none of them twice.
    for (u64 i = part.from + threadIdx.x; i < part.to; i += blockDim.x) {
        uint2 v[GROUP];
#pragma unroll
        for (u32 k = 1; k < GROUP; k++) {
            u64 at = (place + k) % GROUP * shard + i;
            if (at < count) v[k] = load_elements4(a.input, at, a.elements);
        }
#pragma unroll
        for (u32 k = 1; k < GROUP; k++) {
            u32 mate = (place + k) % GROUP;
            if (mate * shard + i < count)
                store_line(a.lines[island * GROUP + mate] + call.lines_half + (place * shard + i) * 16, v[k].x, v[k].y, call.epoch);
        }
    }
    for (u64 i = part.from + threadIdx.x; i < part.to && place * shard + i < count; i += blockDim.x) {
        uint2 v = load_elements4(a.input, place * shard + i, a.elements);
        if (GROUP > 1) v = sum_slots<GROUP>(a, call, mine + i * 16, shard * 16, place, v, island * GROUP, 1, 0, i);
        if (ISLANDS > 1) {
#pragma unroll
            for (u32 k = 1; k < ISLANDS; k++) {
                u32 other = (island + k) % ISLANDS;
                store_line(a.lines[other * GROUP + place] + call.lines_half + exchange + (island * shard + i) * 16, v.x, v.y, call.epoch);
            }
            v = sum_slots<ISLANDS>(a, call, mine + exchange + i * 16, shard * 16, island, v, place, GROUP, 1, i);
        }
#pragma unroll
        for (u32 k = 1; k < GROUP; k++) {
            u32 mate = (place + k) % GROUP;
            store_line(a.lines[island * GROUP + mate] + call.lines_half + gather + (place * shard + i) * 16, v.x, v.y, call.epoch);
        }
        store_elements4(a.output, place * shard + i, a.elements, v);
    }
    // The sums of all mates, all polls in flight.
    for (u64 i = part.from + threadIdx.x; i < part.to; i += blockDim.x) {
        uint4 v[GROUP];
#pragma unroll
        for (u32 m = 0; m < GROUP; m++)
            if (m != place && m * shard + i < count) v[m] = load_line(mine + gather + (m * shard + i) * 16);
        for (u32 polls = 1; !call.failed; polls++) {
            u32 missing = GROUP, seen = 0;
#pragma unroll
            for (u32 m = 0; m < GROUP; m++)
                if (m != place && m * shard + i < count && (v[m].y != call.epoch || v[m].w != call.epoch)) {
                    missing = m;
                    seen = v[m].y;
                    v[m] = load_line(mine + gather + (m * shard + i) * 16);
                }
            if (missing == GROUP) break;
            if (polls % POLLS_PER_CHECK == 0) expired(a, call, island * GROUP + missing, 2, i, seen);
        }
#pragma unroll
        for (u32 m = 0; m < GROUP; m++)
            if (m != place && m * shard + i < count) store_elements4(a.output, m * shard + i, a.elements, make_uint2(v[m].x, v[m].z));
    }
    finish(a, call);
}
