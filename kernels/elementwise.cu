// The small kernels between the products: norms, rotary positions and the
// cache, activations, sums, the embedding, and what fills weights at random.

struct RmsNorm {
    u64 input, residual, residual_out, weight, output;   // residual 0: none is added
    u64 width, input_row, output_row, batch;             // elements; `batch` from y to y, in and out
    u64 epsilon;                                         // float
};

// Words of a row that one thread keeps: rows of up to 2 x 4 x 4 x 512 elements.
#define KEPT 4

// grid = rows x batch. Reads a row, adds the residual, rounds and keeps the sum
// as serving engines do, and normalises what it kept.
extern "C" __global__ void __launch_bounds__(512) rms_norm(const __grid_constant__ RmsNorm a) {
    u32 packs = (u32)(a.width / 4);
    u64 in = (blockIdx.x * a.input_row + blockIdx.y * a.batch) * 2, out = (blockIdx.x * a.output_row + blockIdx.y * a.batch) * 2;
    u64 whole = blockIdx.x * a.width * 2;
    uint2 kept[KEPT];
    float square = 0.0f;
#pragma unroll
    for (u32 n = 0; n < KEPT; n++) {
        u32 i = n * blockDim.x + threadIdx.x;
        if (i >= packs) continue;
        uint2 v = ((const uint2 *)(a.input + in))[i];
        if (a.residual != 0) {
            Sum4 sum;
            sum.set(v);
            sum.add(((const uint2 *)(a.residual + whole))[i]);
            v = sum.get();
        }
        if (a.residual_out != 0) ((uint2 *)(a.residual_out + whole))[i] = v;
        float2 lo = unpack(v.x), hi = unpack(v.y);
        square += lo.x * lo.x + lo.y * lo.y + hi.x * hi.x + hi.y * hi.y;
        kept[n] = v;
    }
    float factor = rsqrtf(block_sum(square) / (float)a.width + __uint_as_float((u32)a.epsilon));
#pragma unroll
    for (u32 n = 0; n < KEPT; n++) {
        u32 i = n * blockDim.x + threadIdx.x;
        if (i >= packs) continue;
        uint2 w = ((const uint2 *)a.weight)[i];
        float2 lo = unpack(kept[n].x), hi = unpack(kept[n].y), wl = unpack(w.x), wh = unpack(w.y);
        lo.x *= factor * wl.x;
        lo.y *= factor * wl.y;
        hi.x *= factor * wh.x;
        hi.y *= factor * wh.y;
        ((uint2 *)(a.output + out))[i] = make_uint2(pack(lo), pack(hi));
    }
}

struct Rotate {
    u64 source, source_row, source_head;   // elements
    u64 target, target_row, target_head;
    u64 width;                             // rotated elements of a head
    u64 table;                             // float2 (cos, sin)[row][width / 2]
    u64 copied, copied_row, copied_head;   // a second part that is copied as it is; 0: none
    u64 copy_target, copy_target_row, copy_target_head, copy_width;
};

// grid = rows x heads. Pairs are (i, i + width / 2).
extern "C" __global__ void __launch_bounds__(512) rotate(const __grid_constant__ Rotate a) {
    const u16 *from = (const u16 *)a.source + blockIdx.x * a.source_row + blockIdx.y * a.source_head;
    u16 *to = (u16 *)a.target + blockIdx.x * a.target_row + blockIdx.y * a.target_head;
    u32 half = (u32)(a.width / 2);
    for (u32 i = threadIdx.x; i < half; i += blockDim.x) {
        float2 turn = ((const float2 *)a.table)[blockIdx.x * half + i];
        float x = unpack(from[i]).x, y = unpack(from[i + half]).x;
        u32 v = pack(make_float2(x * turn.x - y * turn.y, x * turn.y + y * turn.x));
        to[i] = (u16)v;
        to[i + half] = (u16)(v >> 16);
    }
    if (a.copied == 0) return;
    const u16 *copied = (const u16 *)a.copied + blockIdx.x * a.copied_row + blockIdx.y * a.copied_head;
    u16 *target = (u16 *)a.copy_target + blockIdx.x * a.copy_target_row + blockIdx.y * a.copy_target_head;
    for (u32 i = threadIdx.x; i < a.copy_width; i += blockDim.x) target[i] = copied[i];
}

struct Activate {
    u64 input, output, width, input_row, output_row, count_at, top_k;
};

// silu(gate) x up; grid = blocks x rows.
extern "C" __global__ void __launch_bounds__(512) activate(const __grid_constant__ Activate a) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.width / 2) return;
    const u32 *gate = (const u32 *)(a.input + blockIdx.y * a.input_row * 2), *up = (const u32 *)(a.input + (blockIdx.y * a.input_row + a.width) * 2);
    float2 g = unpack(gate[i]), u = unpack(up[i]);
    g.x = g.x / (1.0f + __expf(-g.x)) * u.x;
    g.y = g.y / (1.0f + __expf(-g.y)) * u.y;
    ((u32 *)(a.output + blockIdx.y * a.output_row * 2))[i] = pack(g);
}

struct Add {
    u64 first, second, output, words;
};

extern "C" __global__ void __launch_bounds__(512) add(const __grid_constant__ Add a) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.words) return;
    Sum2 sum;
    sum.set(((const u32 *)a.first)[i]);
    sum.add(((const u32 *)a.second)[i]);
    ((u32 *)a.output)[i] = sum.get();
}

struct Combine {
    u64 parts, weights, output, words, top_k;   // words of a row
};

// Sum of a token's experts, weighted; grid = blocks x tokens.
extern "C" __global__ void __launch_bounds__(512) combine(const __grid_constant__ Combine a) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.words) return;
    float2 sum = make_float2(0.0f, 0.0f);
    for (u32 k = 0; k < a.top_k; k++) {
        u64 pair = blockIdx.y * a.top_k + k;
        float w = ((const float *)a.weights)[pair];
        float2 v = unpack(((const u32 *)a.parts)[pair * a.words + i]);
        sum.x += w * v.x;
        sum.y += w * v.y;
    }
    ((u32 *)a.output)[blockIdx.y * a.words + i] = pack(sum);
}

struct Embed {
    u64 tokens, table, output, words, first, share;   // this rank's rows of the table
};

// grid = blocks x rows; zeros where another rank has the row.
extern "C" __global__ void __launch_bounds__(512) embed(const __grid_constant__ Embed a) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.words) return;
    u64 token = ((const u32 *)a.tokens)[blockIdx.y];
    bool own = token >= a.first && token < a.first + a.share;
    ((u32 *)a.output)[blockIdx.y * a.words + i] = own ? ((const u32 *)a.table)[(token - a.first) * a.words + i] : 0u;
}

// ------------------------------------------------------------ random contents

__device__ __forceinline__ u32 scramble(u64 seed, u64 index) {
    u64 z = seed + index * 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (u32)(z >> 32);
}

struct Fill {
    u64 target, words, seed, shape;   // shape 0: bits; 1: bf16 in [low, low + span); 2: bytes of exponents 125 to 127; 3: int4 of mean 0
    u64 low, span;                    // float
};

extern "C" __global__ void __launch_bounds__(512) fill(const __grid_constant__ Fill a) {
    float low = __uint_as_float((u32)a.low), span = __uint_as_float((u32)a.span);
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.words; i += (u64)gridDim.x * blockDim.x) {
        u32 bits = scramble(a.seed, i), v = bits;
        if (a.shape == 1) v = pack(make_float2(low + span * (float)(bits & 0xffffu) / 65536.0f, low + span * (float)(bits >> 16) / 65536.0f));
        // -8 becomes 0: with a mean that is not 0 all tokens drift to one direction, and to the same experts.
        if (a.shape == 3) v |= (~(v | v >> 1 | v >> 2 | v >> 3) & 0x11111111u) << 3;
        if (a.shape == 2) v = 0x7d7d7d7du + ((bits & 0x01010101u) + (bits >> 1 & 0x01010101u));
        ((u32 *)a.target)[i] = v;
    }
}
