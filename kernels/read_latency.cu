// One thread follows a chain of addresses: each load waits for the last.
// cycles[0] = all hops; cycles[1] keeps the chain alive.
extern "C" __global__ void read_latency(u64 chain, u32 hops, u64 cycles) {
    u64 at = chain;
    for (u32 i = 0; i < 4; i++) asm volatile("ld.relaxed.sys.global.u64 %0, [%0];" : "+l"(at)::"memory");
    long long start = clock64();
    for (u32 i = 0; i < hops; i++) asm volatile("ld.relaxed.sys.global.u64 %0, [%0];" : "+l"(at)::"memory");
    ((volatile u64 *)cycles)[0] = (u64)(clock64() - start);
    ((volatile u64 *)cycles)[1] = at;
}
