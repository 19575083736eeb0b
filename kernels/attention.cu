// Decode attention of the pass's tokens over a cache, split over positions,
// for grouped queries (a line of the cache holds keys and values of its heads)
// and for MLA (the line is the key; its first part is the value).
//
// A block takes Q_ROWS rows of queries (token x head) of one key-value head and
// walks its part of the cache in steps of POSITIONS; the second kernel joins
// the parts. Token i sees the cached positions and the pass's first i + 1.
#define INFINITY __int_as_float(0x7f800000)
#ifndef KEY_WIDTH
#define KEY_WIDTH 576
#endif
#ifndef VALUE_WIDTH
#define VALUE_WIDTH 512
#endif
#define Q_ROWS 16
#define POSITIONS 16
#define THREADS 256
#define WARPS 8
#define WORDS (KEY_WIDTH / 2)
#define LANE_WORDS ((WORDS + 31) / 32)
#define VALUE_WORDS (VALUE_WIDTH / 2)
// Positions whose lines are loaded ahead: the compiler for sm_100 and later
// otherwise loads all 16 and spills what 128 registers do not hold.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define AHEAD 2
#else
#define AHEAD POSITIONS
#endif

struct Attention {
    u64 query;         // bf16 [tokens][heads][KEY_WIDTH]
    u64 cache;         // bf16 [positions][line]
    u64 parts;         // float [split][rows][VALUE_WIDTH]
    u64 sums;          // float2 (largest, sum)[split][rows]
    u64 line;          // elements
    u64 key_head, value_at, value_head;   // where a head's key and value lie in the line
    u64 heads;         // query heads of the rank
    u64 group;         // query heads of one key-value head
    u64 tokens, context, window;          // window 0: all
    u64 each;          // positions of a split, a multiple of POSITIONS
    u64 scale;         // float
};

// Row r of key-value head h: token r / group, head h x group + r % group.
extern "C" __global__ void __launch_bounds__(THREADS, 2) attention_split(const __grid_constant__ Attention a) {
    __shared__ u32 keys[POSITIONS][WORDS];
#if KEY_WIDTH == 576
#define VALUES keys
#else
    __shared__ u32 values[POSITIONS][VALUE_WORDS];
#define VALUES values
#endif
    __shared__ float weight[Q_ROWS][POSITIONS];
    __shared__ float rescale[Q_ROWS];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 head = blockIdx.z, first_row = blockIdx.y * Q_ROWS, rows = (u32)(a.tokens * a.group);
    u32 end = (u32)(a.context + a.tokens);
    u32 from = blockIdx.x * (u32)a.each, to = min(end, from + (u32)a.each);
    float scale = __uint_as_float((u32)a.scale);
    // Warp w keeps the queries of rows w and w + 8.
    u32 q[Q_ROWS / WARPS][LANE_WORDS];
    float largest[Q_ROWS / WARPS], sum[Q_ROWS / WARPS];
#pragma unroll
    for (u32 n = 0; n < Q_ROWS / WARPS; n++) {
        u32 row = first_row + n * WARPS + warp;
        largest[n] = -INFINITY;
        sum[n] = 0.0f;
        u64 at = (row / a.group * a.heads + head * a.group + row % a.group) * WORDS;
#pragma unroll
        for (u32 i = 0; i < LANE_WORDS; i++) {
            u32 word = i * 32 + lane;
            q[n][i] = row < rows && word < WORDS ? ((const u32 *)a.query)[at + word] : 0u;
        }
    }
    // Thread t keeps the output's words t, t + THREADS, ... of all rows, or a
    // share of the rows where a row has fewer words than the block threads.
    const u32 lanes = VALUE_WORDS < THREADS ? VALUE_WORDS : THREADS, shares = THREADS / lanes, kept = Q_ROWS / shares;
    u32 word = threadIdx.x % lanes, share = threadIdx.x / lanes;
    float2 out[kept];
#pragma unroll
    for (u32 n = 0; n < kept; n++) out[n] = make_float2(0.0f, 0.0f);
    for (u32 start = from; start < to; start += POSITIONS) {
        u32 here = min((u32)POSITIONS, to - start);
        __syncthreads();
        for (u32 i = threadIdx.x; i < POSITIONS * WORDS; i += THREADS) {
            u32 p = i / WORDS, w = i % WORDS;
            u64 line = (start + p) * a.line;
            keys[p][w] = p < here ? ((const u32 *)(a.cache + (line + head * a.key_head) * 2))[w] : 0u;
        }
#if KEY_WIDTH != 576
        for (u32 i = threadIdx.x; i < POSITIONS * VALUE_WORDS; i += THREADS) {
            u32 p = i / VALUE_WORDS, w = i % VALUE_WORDS;
            u64 line = (start + p) * a.line;
            values[p][w] = p < here ? ((const u32 *)(a.cache + (line + a.value_at + head * a.value_head) * 2))[w] : 0u;
        }
#endif
        __syncthreads();
#pragma unroll
        for (u32 n = 0; n < Q_ROWS / WARPS; n++) {
            u32 row = first_row + n * WARPS + warp;
            u32 sees = (u32)a.context + row / (u32)a.group + 1;
            u32 begins = a.window != 0 && sees > a.window ? sees - (u32)a.window : 0u;
            float score = -INFINITY;
#pragma unroll AHEAD
            for (u32 p = 0; p < POSITIONS; p++) {
                float dot = 0.0f;
#pragma unroll
                for (u32 i = 0; i < LANE_WORDS; i++) {
                    if (i * 32 + lane >= WORDS) continue;
                    float2 x = unpack(q[n][i]), y = unpack(keys[p][i * 32 + lane]);
                    dot += x.x * y.x + x.y * y.y;
                }
#pragma unroll
                for (u32 d = 16; d > 0; d /= 2) dot += __shfl_xor_sync(0xffffffffu, dot, d);
                u32 position = start + p;
                if (lane == p && p < here && position < sees && position >= begins && row < rows) score = dot * scale;
            }
            float most = score;
#pragma unroll
            for (u32 d = 8; d > 0; d /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
            most = fmaxf(__shfl_sync(0xffffffffu, most, 0), largest[n]);
            float w = score == -INFINITY ? 0.0f : __expf(score - most), total = w;
#pragma unroll
            for (u32 d = 8; d > 0; d /= 2) total += __shfl_xor_sync(0xffffffffu, total, d);
            total = __shfl_sync(0xffffffffu, total, 0);
            float old = largest[n] == -INFINITY ? 0.0f : __expf(largest[n] - most);
            sum[n] = sum[n] * old + total;
            largest[n] = most;
            if (lane < POSITIONS) weight[n * WARPS + warp][lane] = w;
            if (lane == 0) rescale[n * WARPS + warp] = old;
        }
        __syncthreads();
#pragma unroll
        for (u32 n = 0; n < kept; n++) {
            u32 row = share * kept + n;
            float2 v = make_float2(out[n].x * rescale[row], out[n].y * rescale[row]);
#pragma unroll AHEAD
            for (u32 p = 0; p < POSITIONS; p++) {
                float2 y = unpack(VALUES[p][word]);
                v.x += weight[row][p] * y.x;
                v.y += weight[row][p] * y.y;
            }
            out[n] = v;
        }
    }
    u32 all = (u32)a.heads * (u32)a.tokens;
#pragma unroll
    for (u32 n = 0; n < kept; n++) {
        u32 row = first_row + share * kept + n;
        if (row >= rows || word >= VALUE_WORDS) continue;
        u32 place = row / (u32)a.group * (u32)a.heads + head * (u32)a.group + row % (u32)a.group;
        ((float2 *)a.parts)[((u64)blockIdx.x * all + place) * VALUE_WORDS + word] = out[n];
    }
#pragma unroll
    for (u32 n = 0; n < Q_ROWS / WARPS; n++) {
        u32 row = first_row + n * WARPS + warp;
        if (row >= rows || lane != 0) continue;
        u32 place = row / (u32)a.group * (u32)a.heads + head * (u32)a.group + row % (u32)a.group;
        ((float2 *)a.sums)[(u64)blockIdx.x * all + place] = make_float2(largest[n], sum[n]);
    }
}

struct Join {
    u64 parts, sums, output;   // output: bf16 [rows][VALUE_WIDTH]
    u64 sinks;                 // bf16 [heads], or 0
    u64 heads, rows, splits;
};

// grid = rows. A sink is one more score whose value is nothing.
extern "C" __global__ void __launch_bounds__(THREADS) attention_join(const __grid_constant__ Join a) {
    u32 row = blockIdx.x;
    const float2 *sums = (const float2 *)a.sums;
    float most = -INFINITY, total = 0.0f;
    for (u32 s = 0; s < a.splits; s++) most = fmaxf(most, sums[(u64)s * a.rows + row].x);
    float sink = a.sinks != 0 ? unpack(((const u16 *)a.sinks)[row % a.heads]).x : -INFINITY;
    most = fmaxf(most, sink);
    if (a.sinks != 0) total = __expf(sink - most);
    for (u32 s = 0; s < a.splits; s++) {
        float2 v = sums[(u64)s * a.rows + row];
        if (v.x != -INFINITY) total += v.y * __expf(v.x - most);
    }
    for (u32 word = threadIdx.x; word < VALUE_WORDS; word += blockDim.x) {
        float2 out = make_float2(0.0f, 0.0f);
        for (u32 s = 0; s < a.splits; s++) {
            float largest = sums[(u64)s * a.rows + row].x;
            if (largest == -INFINITY) continue;
            float w = __expf(largest - most) / total;
            float2 v = ((const float2 *)a.parts)[((u64)s * a.rows + row) * VALUE_WORDS + word];
            out.x += w * v.x;
            out.y += w * v.y;
        }
        ((u32 *)a.output)[(u64)row * VALUE_WORDS + word] = pack(out);
    }
}
