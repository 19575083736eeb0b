// A clock that all blocks of a GPU can read: one thread writes its own clock
// to device memory until told to stop (a word in host memory) or timed out.
// marks[0] = ticks written, for the step of this clock.
extern "C" __global__ void ticker(u64 tick, u64 stop, u64 marks, u64 timeout_cycles) {
    long long start = clock64(), now = start;
    u64 written = 0;
    while (now - start < (long long)timeout_cycles) {
        for (u32 i = 0; i < 64; i++) {
            now = clock64();
            asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(tick), "l"(now - start) : "memory");
        }
        written += 64;
        if (*(const volatile u32 *)stop != 0) break;
    }
    ((volatile u64 *)marks)[0] = written;
    ((volatile u64 *)marks)[1] = (u64)(now - start);
}
