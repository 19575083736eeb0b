// Notes when it started, by the ticker and by %globaltimer (which moves in
// coarse steps): out[2 * slot], out[2 * slot + 1]. Then spins for `cycles`.
extern "C" __global__ void mark(u64 tick, u64 out, u32 slot, u64 cycles) {
    if (threadIdx.x != 0) return;
    u64 now, timer;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(now) : "l"(tick) : "memory");
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(timer)::"memory");
    ((volatile u64 *)out)[2 * slot] = now;
    ((volatile u64 *)out)[2 * slot + 1] = timer;
    long long start = clock64();
    while (clock64() - start < (long long)cycles) {}
}
