// What every kernel shares: element types, memory operations with their
// ordering, and waits that end. This text is put in front of each kernel's
// own; the result uses no header, so that NVRTC needs no include path.
//
// Set at compile time: RANKS (2 to 16) and ELEMENT_F16 (else bf16).

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifndef RANKS
#define RANKS 2
#endif
#define RANKS_MAX 16
#define BLOCKS_MAX 64
#define PHASES 4
#define THREADS_MAX 512
#define POLLS_PER_CHECK 256u

// ---------------------------------------------------------------- arguments

// Mirrors `Arguments` in src/gpu/arguments.rs, field by field.
struct Arguments {
    u64 input;                 // this rank's elements
    u64 output;                // where the sum goes; may be the input
    u64 elements;              // of one rank (of one destination, for all-to-all)
    u64 lines[RANKS_MAX];      // each rank's region for data with flags inside
    u64 packs[RANKS_MAX];      // each rank's region for plain data
    u64 flags[RANKS_MAX];      // each rank's region for flags
    u64 lines_half_bytes;      // the two halves of a region are used in turn
    u64 packs_half_bytes;
    u64 epochs;                // this rank's u32[BLOCKS_MAX + 1]; the last is the claim of a report
    u64 report;                // this rank's Report, in host memory
    u64 stop;                  // u32 in host memory, seen by all ranks: give up
    u64 timeout_cycles;        // of the multiprocessor's clock
    u32 rank;
    u32 reserved;
};

// Who waited for whom; mirrors `Report` in src/gpu/report.rs.
struct Report {
    u32 filled, rank, block, thread, peer, phase, epoch, seen;
    u64 index;
};

// ------------------------------------------------------- memory with ordering

// Data and flag in one 16-byte store. Only 8-byte halves need to arrive whole:
// each half carries its own flag.
__device__ __forceinline__ void store_line(u64 at, u32 a, u32 b, u32 flag) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(a), "r"(flag), "r"(b), "r"(flag) : "memory");
}

__device__ __forceinline__ uint4 load_line(u64 at) {
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}

__device__ __forceinline__ void store_packet(u64 at, u32 data, u32 flag) {
    asm volatile("st.relaxed.sys.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(data), "r"(flag) : "memory");
}

__device__ __forceinline__ uint2 load_packet(u64 at) {
    uint2 v;
    asm volatile("ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(at) : "memory");
    return v;
}

// 16 bytes of plain data, past the first-level cache: another GPU or an
// earlier phase of this kernel wrote them.
__device__ __forceinline__ uint4 load_pack(u64 at) { return load_line(at); }

__device__ __forceinline__ void store_pack(u64 at, uint4 v) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// Everything that this block stored before the last barrier is visible to
// whoever sees the flag.
__device__ __forceinline__ void store_flag(u64 at, u32 value) {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

__device__ __forceinline__ u32 load_flag(u64 at) {
    u32 v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}

// ------------------------------------------------------------------ elements

#ifdef ELEMENT_F16
__device__ __forceinline__ float2 unpack(u32 v) {
    float2 f;
    asm("{ .reg .f16 lo, hi; mov.b32 {lo, hi}, %2; cvt.f32.f16 %0, lo; cvt.f32.f16 %1, hi; }" : "=f"(f.x), "=f"(f.y) : "r"(v));
    return f;
}
__device__ __forceinline__ u32 pack(float2 f) {
    u32 v;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(f.y), "f"(f.x));
    return v;
}
#else
__device__ __forceinline__ float2 unpack(u32 v) {
    float2 f;
    f.x = __uint_as_float(v << 16);
    f.y = __uint_as_float(v & 0xffff0000u);
    return f;
}
__device__ __forceinline__ u32 pack(float2 f) {
    u32 v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(f.y), "f"(f.x));
    return v;
}
#endif

// Sums of 2, 4 and 8 elements, kept in f32 until the end.
struct Sum2 {
    float2 a;
    __device__ __forceinline__ void set(u32 v) { a = unpack(v); }
    __device__ __forceinline__ void add(u32 v) {
        float2 f = unpack(v);
        a.x += f.x;
        a.y += f.y;
    }
    __device__ __forceinline__ u32 get() const { return pack(a); }
};

struct Sum4 {
    Sum2 a, b;
    __device__ __forceinline__ void set(uint2 v) { a.set(v.x); b.set(v.y); }
    __device__ __forceinline__ void add(uint2 v) { a.add(v.x); b.add(v.y); }
    __device__ __forceinline__ uint2 get() const { return make_uint2(a.get(), b.get()); }
};

struct Sum8 {
    Sum4 a, b;
    __device__ __forceinline__ void set(uint4 v) { a.set(make_uint2(v.x, v.y)); b.set(make_uint2(v.z, v.w)); }
    __device__ __forceinline__ void add(uint4 v) { a.add(make_uint2(v.x, v.y)); b.add(make_uint2(v.z, v.w)); }
    __device__ __forceinline__ uint4 get() const {
        uint2 x = a.get(), y = b.get();
        return make_uint4(x.x, x.y, y.x, y.y);
    }
};

// Word `index` (two elements) of a buffer of `elements`; zero past the end.
__device__ __forceinline__ u32 load_word(u64 base, u64 index, u64 elements) {
    if (index * 2 + 2 <= elements) return ((const u32 *)base)[index];
    return index * 2 < elements ? ((const u16 *)base)[index * 2] : 0u;
}

__device__ __forceinline__ void store_word(u64 base, u64 index, u64 elements, u32 v) {
    if (index * 2 + 2 <= elements) ((u32 *)base)[index] = v;
    else if (index * 2 < elements) ((u16 *)base)[index * 2] = (u16)v;
}

// Line `index`: four elements, 8 bytes.
__device__ __forceinline__ uint2 load_elements4(u64 base, u64 index, u64 elements) {
    if (index * 4 + 4 <= elements) return ((const uint2 *)base)[index];
    return make_uint2(load_word(base, index * 2, elements), load_word(base, index * 2 + 1, elements));
}

__device__ __forceinline__ void store_elements4(u64 base, u64 index, u64 elements, uint2 v) {
    if (index * 4 + 4 <= elements) {
        ((uint2 *)base)[index] = v;
    } else {
        store_word(base, index * 2, elements, v.x);
        store_word(base, index * 2 + 1, elements, v.y);
    }
}

// Pack `index`: eight elements, 16 bytes. A partial one is a call: one a buffer
// takes it, and inlined into unrolled loops it would be most of the code.
__device__ __noinline__ uint4 load_tail8(u64 base, u64 index, u64 elements) {
    uint2 lo = load_elements4(base, index * 2, elements), hi = load_elements4(base, index * 2 + 1, elements);
    return make_uint4(lo.x, lo.y, hi.x, hi.y);
}

__device__ __noinline__ void store_tail8(u64 base, u64 index, u64 elements, uint4 v) {
    store_elements4(base, index * 2, elements, make_uint2(v.x, v.y));
    store_elements4(base, index * 2 + 1, elements, make_uint2(v.z, v.w));
}

__device__ __forceinline__ uint4 load_elements8(u64 base, u64 index, u64 elements) {
    if (index * 8 + 8 <= elements) return ((const uint4 *)base)[index];
    return load_tail8(base, index, elements);
}

__device__ __forceinline__ void store_elements8(u64 base, u64 index, u64 elements, uint4 v) {
    if (index * 8 + 8 <= elements) {
        ((uint4 *)base)[index] = v;
    } else {
        store_tail8(base, index, elements, v);
    }
}

// ------------------------------------------------------- one call, its epoch

// Every launch advances all BLOCKS_MAX counters of its rank by one, each block
// those of its own residue class; so the counters are equal between launches
// whatever the grid, and all ranks agree on the epoch without talking.
struct Call {
    u32 epoch;
    bool failed;
    long long began;
    u64 lines_half, packs_half;
};

__device__ __forceinline__ Call begin(const Arguments &a) {
    Call call;
    call.epoch = ((const volatile u32 *)a.epochs)[blockIdx.x] + 1;
    call.failed = false;
    call.began = clock64();
    call.lines_half = (call.epoch & 1) * a.lines_half_bytes;
    call.packs_half = (call.epoch & 1) * a.packs_half_bytes;
    return call;
}

// 0xffffffff is followed by 2, not 0: memory never written holds 0, and the
// parity must alternate.
__device__ __forceinline__ void finish(const Arguments &a, const Call &call) {
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 next = call.epoch == 0xffffffffu ? 1u : call.epoch;
        for (u32 b = blockIdx.x; b < BLOCKS_MAX; b += gridDim.x) ((u32 *)a.epochs)[b] = next;
    }
}

// True when a wait has taken too long or another rank has given up. The first
// to notice tells the host whom it waited for.
__device__ __noinline__ bool timed_out(const Arguments &a, long long began, u32 epoch, u32 peer, u32 phase, u64 index, u32 seen) {
    if (*(const volatile u32 *)a.stop != 0) return true;
    if (clock64() - began <= (long long)a.timeout_cycles) return false;
    if (atomicCAS((u32 *)a.epochs + BLOCKS_MAX, 0u, 1u) == 0u) {
        volatile Report *r = (volatile Report *)a.report;
        r->rank = a.rank;
        r->block = blockIdx.x;
        r->thread = threadIdx.x;
        r->peer = peer;
        r->phase = phase;
        r->epoch = epoch;
        r->seen = seen;
        r->index = index;
        asm volatile("fence.acq_rel.sys;" ::: "memory");
        r->filled = 1;
        *(volatile u32 *)a.stop = 1;
    }
    return true;
}

// Called now and then while polling; once true, later waits of the call end at
// once. `call` stays in registers: its address goes nowhere.
__device__ __forceinline__ bool expired(const Arguments &a, Call &call, u32 peer, u32 phase, u64 index, u32 seen) {
    if (!call.failed) call.failed = timed_out(a, call.began, call.epoch, peer, phase, index, seen);
    return call.failed;
}

// The line at `at`, once both of its halves carry this call's epoch.
__device__ __forceinline__ uint2 wait_line(const Arguments &a, Call &call, u64 at, u32 peer, u32 phase, u64 index) {
    uint4 v = load_line(at);
    for (u32 polls = 1; v.y != call.epoch || v.w != call.epoch; polls++) {
        if (call.failed || (polls % POLLS_PER_CHECK == 0 && expired(a, call, peer, phase, index, v.y))) break;
        v = load_line(at);
    }
    return make_uint2(v.x, v.z);
}

// The lines `first + r * stride` of all ranks r but this one, all polls in
// flight at once, summed in the order of ranks so that every rank gets the
// same bits. `own` stands in for this rank's.
__device__ __forceinline__ uint2 sum_lines(const Arguments &a, Call &call, u64 first, u64 stride, uint2 own, u32 phase, u64 index) {
    uint4 v[RANKS];
#pragma unroll
    for (u32 r = 0; r < RANKS; r++)
        if (r != a.rank) v[r] = load_line(first + r * stride);
    for (u32 polls = 1; !call.failed; polls++) {
        u32 missing = RANKS, seen = 0;
#pragma unroll
        for (u32 r = 0; r < RANKS; r++)
            if (r != a.rank && (v[r].y != call.epoch || v[r].w != call.epoch)) {
                missing = r;
                seen = v[r].y;
                v[r] = load_line(first + r * stride);
            }
        if (missing == RANKS) break;
        if (polls % POLLS_PER_CHECK == 0) expired(a, call, missing, phase, index, seen);
    }
    Sum4 sum;
#pragma unroll
    for (u32 r = 0; r < RANKS; r++) {
        uint2 x = r == a.rank ? own : make_uint2(v[r].x, v[r].z);
        if (r == 0) sum.set(x);
        else sum.add(x);
    }
    return sum.get();
}

// Flags: one word for each half, phase, block and source.
__device__ __forceinline__ u64 flag_at(const Arguments &a, const Call &call, u32 owner, u32 phase, u32 source) {
    u64 slot = (((u64)(call.epoch & 1) * PHASES + phase) * BLOCKS_MAX + blockIdx.x) * RANKS_MAX + source;
    return a.flags[owner] + slot * sizeof(u32);
}

// Tells all peers that this block's stores of `phase` are done, then waits
// until the same block of every peer said so. Thread t deals with rank t.
__device__ __forceinline__ void exchange_flags(const Arguments &a, Call &call, u32 phase) {
    __syncthreads();
    u32 peer = threadIdx.x;
    if (peer < RANKS && peer != a.rank) {
        store_flag(flag_at(a, call, peer, phase, a.rank), call.epoch);
        u64 at = flag_at(a, call, a.rank, phase, peer);
        u32 seen = load_flag(at);
        for (u32 polls = 1; seen != call.epoch; polls++) {
            if (call.failed || (polls % POLLS_PER_CHECK == 0 && expired(a, call, peer, phase, blockIdx.x, seen))) break;
            seen = load_flag(at);
        }
    }
    __syncthreads();
}

// The part [from, to) of `count` items that belongs to this block.
struct Slice {
    u64 from, to;
};

__device__ __forceinline__ Slice slice(u64 count) {
    u64 each = (count + gridDim.x - 1) / gridDim.x;
    Slice s;
    s.from = min(count, each * blockIdx.x);
    s.to = min(count, s.from + each);
    return s;
}

__device__ __forceinline__ u32 peer_at(u32 rank, u32 step) {
    u32 p = rank + step;
    return p >= RANKS ? p - RANKS : p;
}

// Sum over the block; every thread gets it.
__device__ __forceinline__ float block_sum(float x) {
    __shared__ float warps[32];
#pragma unroll
    for (u32 d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x % 32 < blockDim.x / 32 ? warps[threadIdx.x % 32] : 0.0f;
#pragma unroll
    for (u32 d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}
