// The choice of experts: the best K of each token's scores, their weights, and
// the list of distinct experts with the rows that each serves.
#define INFINITY __int_as_float(0x7f800000)
#define EXPERTS_MAX 512
#define ENTRY_WORDS 16
#define ENTRY_ROWS 8

struct TopK {
    u64 scores;       // bf16 [tokens][experts]
    u64 correction;   // bf16 [experts] added to sigmoid scores for the choice; 0: softmax of the chosen
    u64 chosen;       // u32 [tokens][top_k]
    u64 weights;      // float [tokens][top_k]
    u64 experts, top_k;
};

// grid = tokens, one warp. Of equal scores the first expert wins.
extern "C" __global__ void __launch_bounds__(32) top_k(const __grid_constant__ TopK a) {
    const u32 each = EXPERTS_MAX / 32;
    u32 lane = threadIdx.x, token = blockIdx.x;
    const u16 *scores = (const u16 *)a.scores + token * a.experts;
    float value[each], rank[each];
#pragma unroll
    for (u32 j = 0; j < each; j++) {
        u32 e = j * 32 + lane;
        float x = e < a.experts ? unpack(scores[e]).x : -INFINITY;
        value[j] = a.correction != 0 ? 1.0f / (1.0f + __expf(-x)) : x;
        rank[j] = e >= a.experts ? -INFINITY : a.correction != 0 ? value[j] + unpack(((const u16 *)a.correction)[e]).x : x;
    }
    float mine = 0.0f, sum = 0.0f, most = 0.0f;
    u32 own = 0;
    for (u32 k = 0; k < a.top_k; k++) {
        float best = -INFINITY, worth = 0.0f;
        u32 at = 0xffffffffu;
#pragma unroll
        for (u32 j = 0; j < each; j++)
            if (rank[j] > best) {
                best = rank[j];
                worth = value[j];
                at = j * 32 + lane;
            }
#pragma unroll
        for (u32 d = 16; d > 0; d /= 2) {
            float other = __shfl_xor_sync(0xffffffffu, best, d), other_worth = __shfl_xor_sync(0xffffffffu, worth, d);
            u32 other_at = __shfl_xor_sync(0xffffffffu, at, d);
            if (other > best || (other == best && other_at < at)) {
                best = other;
                worth = other_worth;
                at = other_at;
            }
        }
#pragma unroll
        for (u32 j = 0; j < each; j++)
            if (j * 32 + lane == at) rank[j] = -INFINITY;
        if (k == 0) most = worth;
        float w = a.correction != 0 ? worth : __expf(worth - most);
        sum += w;
        if (lane == k) {
            mine = w;
            own = at;
        }
    }
    if (lane < a.top_k) {
        ((u32 *)a.chosen)[token * a.top_k + lane] = own;
        ((float *)a.weights)[token * a.top_k + lane] = mine / sum;
    }
}

struct Align {
    u64 chosen, entries, entry_count, pairs, experts;
};

// One block: entries [expert, count, pairs], experts ascending, at most
// ENTRY_ROWS pairs an entry.
extern "C" __global__ void __launch_bounds__(EXPERTS_MAX) align(const __grid_constant__ Align a) {
    __shared__ u32 base[EXPERTS_MAX];
    u32 e = threadIdx.x, count = 0;
    const u32 *chosen = (const u32 *)a.chosen;
    for (u32 p = 0; p < a.pairs; p++) count += chosen[p] == e;
    u32 need = e < a.experts ? (count + ENTRY_ROWS - 1) / ENTRY_ROWS : 0u;
    base[e] = need;
    __syncthreads();
    for (u32 d = 1; d < EXPERTS_MAX; d *= 2) {
        u32 before = e >= d ? base[e - d] : 0u;
        __syncthreads();
        base[e] += before;
        __syncthreads();
    }
    if (e == EXPERTS_MAX - 1) *(u32 *)a.entry_count = base[e];
    if (need == 0) return;
    u32 *entry = (u32 *)a.entries + (base[e] - need) * ENTRY_WORDS, filled = 0;
    for (u32 p = 0; p < a.pairs; p++) {
        if (chosen[p] != e) continue;
        if (filled == ENTRY_ROWS) {
            entry[0] = e;
            entry[1] = ENTRY_ROWS;
            entry += ENTRY_WORDS;
            filled = 0;
        }
        entry[2 + filled++] = p;
    }
    entry[0] = e;
    entry[1] = filled;
}
