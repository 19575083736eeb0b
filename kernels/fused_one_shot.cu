// All-reduce + residual add + RMSNorm in one kernel. Row t (one token) is dealt
// to SPLIT blocks; they push their lines to every peer with the flag inside,
// sum, add the residual, and exchange their sums of squares through this
// rank's own memory. residual_out is rounded to the element type before the
// norm, as serving engines do.
// grid = tokens x SPLIT; SPLIT blocks of a token must be resident together.
#ifndef SPLIT
#define SPLIT 1
#endif
#ifndef LINES_PER_THREAD
#define LINES_PER_THREAD 2
#endif

struct Norm {
    u64 residual;      // [tokens][hidden], read
    u64 weight;        // [hidden]
    u64 residual_out;  // [tokens][hidden]
    u64 normed;        // [tokens][hidden]
    u64 partials;      // this rank's packets, 2 x BLOCKS_MAX
    u32 hidden;        // multiple of 4
    float epsilon;
};

__device__ __forceinline__ float squares(uint2 v) {
    float2 lo = unpack(v.x), hi = unpack(v.y);
    return lo.x * lo.x + lo.y * lo.y + hi.x * hi.x + hi.y * hi.y;
}

__device__ __forceinline__ u32 scaled(u32 v, u32 weight, float factor) {
    float2 x = unpack(v), w = unpack(weight);
    x.x *= factor * w.x;
    x.y *= factor * w.y;
    return pack(x);
}

extern "C" __global__ void __launch_bounds__(THREADS_MAX) fused_one_shot(const __grid_constant__ Arguments a, const __grid_constant__ Norm norm) {
    Call call = begin(a);
    u64 count = a.elements / 4;
    u32 row = norm.hidden / 4, token = blockIdx.x / SPLIT;
    u32 each = (row + SPLIT - 1) / SPLIT;
    u32 from = min(row, (blockIdx.x % SPLIT) * each), to = min(row, from + each);
    u64 base = (u64)token * row;
    // All that is read is on its way before the first store.
    uint2 own[LINES_PER_THREAD], residual[LINES_PER_THREAD], weight[LINES_PER_THREAD], kept[LINES_PER_THREAD];
#pragma unroll
    for (u32 n = 0; n < LINES_PER_THREAD; n++) {
        u32 i = from + n * blockDim.x + threadIdx.x;
        if (i < to) {
            own[n] = ((const uint2 *)a.input)[base + i];
            residual[n] = ((const uint2 *)norm.residual)[base + i];
            weight[n] = ((const uint2 *)norm.weight)[i];
        }
    }
#pragma unroll
    for (u32 n = 0; n < LINES_PER_THREAD; n++) {
        u32 i = from + n * blockDim.x + threadIdx.x;
        if (i < to) {
#pragma unroll
            for (u32 k = 1; k < RANKS; k++)
                store_line(a.lines[peer_at(a.rank, k)] + call.lines_half + (a.rank * count + base + i) * 16, own[n].x, own[n].y, call.epoch);
        }
    }
    float square = 0.0f;
#pragma unroll
    for (u32 n = 0; n < LINES_PER_THREAD; n++) {
        u32 i = from + n * blockDim.x + threadIdx.x;
        if (i < to) {
            uint2 sum = sum_lines(a, call, a.lines[a.rank] + call.lines_half + (base + i) * 16, count * 16, own[n], 0, base + i);
            Sum4 total;
            total.set(sum);
            total.add(residual[n]);
            kept[n] = total.get();
            ((uint2 *)norm.residual_out)[base + i] = kept[n];
            square += squares(kept[n]);
        }
    }
    square = block_sum(square);
    if (SPLIT > 1) {
        u64 half = norm.partials + (call.epoch & 1) * BLOCKS_MAX * 8;
        if (threadIdx.x == 0) store_packet(half + blockIdx.x * 8, __float_as_uint(square), call.epoch);
        square = 0.0f;
#pragma unroll
        for (u32 s = 0; s < SPLIT; s++) {
            u64 at = half + (token * SPLIT + s) * 8;
            uint2 v = load_packet(at);
            for (u32 polls = 1; v.y != call.epoch; polls++) {
                if (call.failed || (polls % POLLS_PER_CHECK == 0 && expired(a, call, a.rank, 1, token * SPLIT + s, v.y))) break;
                v = load_packet(at);
            }
            square += __uint_as_float(v.x);
        }
    }
    float factor = rsqrtf(square / (float)norm.hidden + norm.epsilon);
#pragma unroll
    for (u32 n = 0; n < LINES_PER_THREAD; n++) {
        u32 i = from + n * blockDim.x + threadIdx.x;
        if (i < to)
            ((uint2 *)norm.normed)[base + i] = make_uint2(scaled(kept[n].x, weight[n].x, factor), scaled(kept[n].y, weight[n].y, factor));
    }
    finish(a, call);
}
