// About 16 KB of instructions that run once, another program for each KIND:
// what it costs when other kernels have run since the last launch of this one.
#ifndef KIND
#define KIND 1
#endif
extern "C" __global__ void __launch_bounds__(256) code(u64 target, float x) {
    float a = x, b = x + KIND, c = x * KIND, d = 1.0f + KIND;
#pragma unroll
    for (int i = 0; i < 256; i++) {
        a = fmaf(a, b, c + (float)(i * KIND));
        b = fmaf(b, c, d - (float)i);
        c = fmaf(c, d, a + (float)KIND);
        d = fmaf(d, a, b);
    }
    // Never so: what is computed must not be left out.
    if (a + b + c + d == 12345.678f) *(float *)target = a;
}
