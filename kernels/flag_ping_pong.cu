// Two launches of one block each (on one GPU or two) pass a flag to and fro.
// `mine` is polled, `theirs` is written; with `fenced`, a 16-byte store and a
// fence go before each flag. cycles[0] = all rounds, on the first's clock.
extern "C" __global__ void flag_ping_pong(u64 mine, u64 theirs, u64 payload, u32 rounds, u32 first, u32 fenced, u64 cycles, u64 timeout_cycles) {
    if (threadIdx.x != 0) return;
    long long began = clock64(), start = began;
    for (u32 round = 1; round <= rounds + 1; round++) {
        if (round == 2) start = clock64();
        for (u32 turn = 0; turn < 2; turn++) {
            if ((turn == 0) == (first != 0)) {
                if (fenced) {
                    store_pack(payload, make_uint4(round, round, round, round));
                    store_flag(theirs, round);
                } else {
                    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(theirs), "r"(round) : "memory");
                }
            } else {
                while (true) {
                    u32 seen;
                    if (fenced) seen = load_flag(mine);
                    else asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(mine) : "memory");
                    if (seen == round) break;
                    if (clock64() - began > (long long)timeout_cycles) {
                        ((volatile u64 *)cycles)[0] = 0;
                        ((volatile u64 *)cycles)[1] = round;
                        return;
                    }
                }
            }
        }
    }
    ((volatile u64 *)cycles)[0] = (u64)(clock64() - start);
}
