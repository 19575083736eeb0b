// The most likely token of each row of gathered logits.
#define INFINITY __int_as_float(0x7f800000)
#define PARTS 64

struct Sample {
    u64 logits;    // bf16 [ranks][rows][share]
    u64 best;      // float2 (value, index bits)[rows][PARTS]
    u64 tokens;    // u32 [rows]
    u64 ranks, rows, share, vocabulary;
};

__device__ __forceinline__ void better(float &value, u32 &at, float other, u32 other_at) {
    if (other > value || (other == value && other_at < at)) {
        value = other;
        at = other_at;
    }
}

__device__ __forceinline__ void block_best(float &value, u32 &at) {
    __shared__ float values[32];
    __shared__ u32 places[32];
#pragma unroll
    for (u32 d = 16; d > 0; d /= 2) better(value, at, __shfl_xor_sync(0xffffffffu, value, d), __shfl_xor_sync(0xffffffffu, at, d));
    if (threadIdx.x % 32 == 0) {
        values[threadIdx.x / 32] = value;
        places[threadIdx.x / 32] = at;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        for (u32 w = 1; w < blockDim.x / 32; w++) better(value, at, values[w], places[w]);
}

// grid = PARTS x rows.
extern "C" __global__ void __launch_bounds__(256) sample_parts(const __grid_constant__ Sample a) {
    u64 all = a.ranks * a.share;
    float value = -INFINITY;
    u32 at = 0xffffffffu;
    for (u64 i = blockIdx.x * blockDim.x + threadIdx.x; i < all; i += (u64)PARTS * blockDim.x) {
        if (i >= a.vocabulary) continue;
        float x = unpack(((const u16 *)a.logits)[(i / a.share * a.rows + blockIdx.y) * a.share + i % a.share]).x;
        better(value, at, x, (u32)i);
    }
    block_best(value, at);
    if (threadIdx.x == 0) ((float2 *)a.best)[blockIdx.y * PARTS + blockIdx.x] = make_float2(value, __uint_as_float(at));
}

// grid = rows.
extern "C" __global__ void __launch_bounds__(PARTS) sample_last(const __grid_constant__ Sample a) {
    float2 v = ((const float2 *)a.best)[blockIdx.x * PARTS + threadIdx.x];
    float value = v.x;
    u32 at = __float_as_uint(v.y);
    block_best(value, at);
    if (threadIdx.x == 0) ((u32 *)a.tokens)[blockIdx.x] = at;
}
