// Products of a weight by up to eight rows of activations at once, on tensor
// cores, plain, batched (per head) or of routed experts:
// y[row][i] = alpha x sum over k of W[i][k] x[row][k] + bias[i].
//
// Weights lie in tiles of 16 rows (i) x one step along k, in the order in which
// the lanes of a warp hold them, so that each lane reads 16 bytes and a warp
// 512 in a row. All tiles along k of one row of tiles lie one after another.
//   DTYPE 0: bf16, steps of 16.
//   DTYPE 1: int4, steps of 64, a bf16 scale per 32 along k.
//   DTYPE 2: mxfp4 (e2m1), steps of 64, an exponent (e8m0) per 32 along k.
// A block of 8 warps takes 8 / KSPLIT rows of tiles; KSPLIT warps share each.
#ifndef DTYPE
#define DTYPE 0
#endif
#ifndef KSPLIT
#define KSPLIT 8
#endif
#define WARPS 8
#define ROWS 8
#define ENTRY_WORDS 16
#if DTYPE == 0
#define FLIGHT 8
#else
#define FLIGHT 4
#endif

struct Matvec {
    u64 weights;       // tiles
    u64 scales;        // per tile 64 bytes (int4) or 32 (mxfp4)
    u64 x;             // bf16, rows padded with zeros to whole steps
    u64 y;             // bf16
    u64 bias;          // bf16[n], or 0
    u64 entries;       // experts: [expert, count, row of each], ENTRY_WORDS words each; or 0
    u64 entry_count;   // experts: where their number lies
    u64 n;             // outputs
    u64 steps;         // along k
    u64 rows;          // of activations
    u64 x_row;         // elements from row to row; for experts of one token
    u64 x_batch;       // elements from batch to batch
    u64 y_row;
    u64 y_batch;
    u64 weight_batch;  // bytes from batch (or expert) to the next
    u64 scale_batch;
    u64 x_divisor;     // experts: rows of y that share one row of x (top-k), or 1
    u64 alpha;         // float
};

struct Operand {
    u32 a0, a1, a2, a3;
};

__device__ __forceinline__ uint4 load_weights(u64 at) {
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
    return v;
}

__device__ __forceinline__ void multiply(float *c, const Operand &a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.a0), "r"(a.a1), "r"(a.a2), "r"(a.a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ u32 fused_bf16x2(u32 a, u32 b, u32 c) {
    u32 d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

// Two weights of four bits each, at bits 0 and 16, as bf16.
__device__ __forceinline__ u32 widen(u32 v) {
#if DTYPE == 1
    // 0x4300 is 128, of which 4 bits of mantissa hold the integer: minus 136, times 1.
    return fused_bf16x2((v & 0x000f000fu) | 0x43004300u, 0x3f803f80u, 0xc308c308u);
#else
    // Two bits of exponent and one of mantissa where bf16 has them, times 2^126.
    return fused_bf16x2((v & 0x00070007u) << 6 | (v & 0x00080008u) << 12, 0x7e807e80u, 0u);
#endif
}

__device__ __forceinline__ Operand widen_tile(u32 v) {
    Operand a;
    a.a0 = widen(v);
    a.a1 = widen(v >> 4);
    a.a2 = widen(v >> 8);
    a.a3 = widen(v >> 12);
    return a;
}

// One step: `words` are the lane's two (bf16) or eight words of x.
#if DTYPE == 0
#define X_WORDS 2
__device__ __forceinline__ void step(float *c, uint4 v, const u32 *words, uint2) {
    Operand a = {v.x, v.y, v.z, v.w};
    multiply(c, a, words[0], words[1]);
}
#else
#define X_WORDS 8
__device__ __forceinline__ void step(float *c, uint4 v, const u32 *words, uint2 scale) {
    float d[2][4] = {};
    multiply(d[0], widen_tile(v.x), words[0], words[1]);
    multiply(d[0], widen_tile(v.y), words[2], words[3]);
    multiply(d[1], widen_tile(v.z), words[4], words[5]);
    multiply(d[1], widen_tile(v.w), words[6], words[7]);
#if DTYPE == 1
    float low0 = __uint_as_float(scale.x << 16), low1 = __uint_as_float(scale.x & 0xffff0000u);
    float high0 = __uint_as_float(scale.y << 16), high1 = __uint_as_float(scale.y & 0xffff0000u);
#else
    float low0 = __uint_as_float((scale.x & 0xffu) << 23), low1 = __uint_as_float((scale.x >> 8 & 0xffu) << 23);
    float high0 = __uint_as_float((scale.x >> 16 & 0xffu) << 23), high1 = __uint_as_float((scale.x >> 24) << 23);
#endif
    c[0] += low0 * d[0][0] + low1 * d[1][0];
    c[1] += low0 * d[0][1] + low1 * d[1][1];
    c[2] += high0 * d[0][2] + high1 * d[1][2];
    c[3] += high0 * d[0][3] + high1 * d[1][3];
}
#endif

__device__ __forceinline__ uint2 load_scale(u64 scales, u64 tile, u32 group) {
#if DTYPE == 1
    return __ldg((const uint2 *)(scales + (tile * 8 + group) * 8));
#elif DTYPE == 2
    return make_uint2(__ldg((const u32 *)(scales + (tile * 8 + group) * 4)), 0u);
#else
    return make_uint2(0u, 0u);
#endif
}

__device__ __forceinline__ void load_x(u32 *words, const u32 *x, u64 s, u32 t, bool has) {
#pragma unroll
    for (u32 j = 0; j < X_WORDS; j++) words[j] = has ? __ldg(x + s * (X_WORDS * 4) + j * 4 + t) : 0u;
}

__device__ __forceinline__ void store_bf16(u64 y, u64 index, float v) { ((u16 *)y)[index] = (u16)pack(make_float2(v, 0.0f)); }

extern "C" __global__ void __launch_bounds__(256) matvec(const __grid_constant__ Matvec a) {
    __shared__ float parts[WARPS][32][4];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, t = lane % 4;
    u32 part = warp % KSPLIT;
    u64 row_of_tiles = (u64)blockIdx.x * (WARPS / KSPLIT) + warp / KSPLIT;
    u64 weights = a.weights, scales = a.scales, x = a.x, y = a.y;
    u32 first = blockIdx.z * ROWS, count = min((u32)ROWS, (u32)a.rows - first);
    const u32 *entry = (const u32 *)a.entries + blockIdx.y * ENTRY_WORDS;
    if (a.entries != 0) {
        if (blockIdx.y >= *(const u32 *)a.entry_count) return;
        weights += entry[0] * a.weight_batch;
        scales += entry[0] * a.scale_batch;
        count = entry[1];
    } else {
        weights += blockIdx.y * a.weight_batch;
        scales += blockIdx.y * a.scale_batch;
        x += blockIdx.y * a.x_batch * 2;
        y += blockIdx.y * a.y_batch * 2;
    }
    bool here = row_of_tiles * 16 < a.n, has = here && group < count;
    u64 x_row = 0;
    if (has) x_row = a.entries != 0 ? entry[2 + group] / (u32)a.x_divisor : first + group;
    const u32 *words = (const u32 *)(x + x_row * a.x_row * 2);
    float c[4] = {};
    if (here) {
        u64 s = a.steps * part / KSPLIT, to = a.steps * (part + 1) / KSPLIT;
        u64 tile = row_of_tiles * a.steps;
        for (; s + FLIGHT <= to; s += FLIGHT) {
            uint4 v[FLIGHT];
            uint2 scale[FLIGHT];
            u32 b[FLIGHT][X_WORDS];
#pragma unroll
            for (u32 i = 0; i < FLIGHT; i++) v[i] = load_weights(weights + (tile + s + i) * 512 + lane * 16);
#pragma unroll
            for (u32 i = 0; i < FLIGHT; i++) scale[i] = load_scale(scales, tile + s + i, group);
#pragma unroll
            for (u32 i = 0; i < FLIGHT; i++) load_x(b[i], words, s + i, t, has);
#pragma unroll
            for (u32 i = 0; i < FLIGHT; i++) step(c, v[i], b[i], scale[i]);
        }
        for (; s < to; s++) {
            u32 b[X_WORDS];
            load_x(b, words, s, t, has);
            step(c, load_weights(weights + (tile + s) * 512 + lane * 16), b, load_scale(scales, tile + s, group));
        }
    }
    if (KSPLIT > 1) {
        if (part != 0)
            for (u32 i = 0; i < 4; i++) parts[warp][lane][i] = c[i];
        __syncthreads();
        if (part != 0) return;
#pragma unroll
        for (u32 p = 1; p < KSPLIT; p++)
            for (u32 i = 0; i < 4; i++) c[i] += parts[warp + p][lane][i];
    }
    if (!here) return;
    float alpha = __uint_as_float((u32)a.alpha);
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        u32 column = 2 * t + i % 2;
        u64 out = row_of_tiles * 16 + group + (i / 2) * 8;
        if (column >= count || out >= a.n) continue;
        u64 row = a.entries != 0 ? entry[2 + column] : first + column;
        float v = alpha * c[i];
        if (a.bias != 0) v += unpack(((const u16 *)a.bias)[out]).x;
        store_bf16(y, row * a.y_row + out, v);
    }
}
