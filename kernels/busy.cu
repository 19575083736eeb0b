// Spins for `cycles` of the multiprocessor's clock: tells the clock rate, and
// keeps a stream back while others are launched.
extern "C" __global__ void busy(u64 cycles) {
    long long start = clock64();
    while (clock64() - start < (long long)cycles) {}
}
