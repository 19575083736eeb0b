// Adds to `wrong` the words of `output` that differ from `expected`: checks
// every call of a long chain without leaving the GPU.
extern "C" __global__ void __launch_bounds__(1024) compare(u64 output, u64 expected, u64 elements, u64 wrong) {
    u64 count = (elements + 1) / 2;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x)
        if (load_word(output, i, elements) != load_word(expected, i, elements)) atomicAdd((u32 *)wrong, 1u);
}
