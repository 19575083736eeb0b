// output = input + staged, `elements` of each: the adding step of the ring
// whose copies are made by the copy engines and ordered by the host's graph.
extern "C" __global__ void __launch_bounds__(1024) accumulate(u64 input, u64 staged, u64 output, u64 elements) {
    u64 count = (elements + 7) / 8;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        Sum8 sum;
        sum.set(load_elements8(staged, i, elements));
        sum.add(load_elements8(input, i, elements));
        store_elements8(output, i, elements, sum.get());
    }
}
