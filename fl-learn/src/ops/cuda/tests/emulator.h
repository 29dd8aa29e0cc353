// CUDA's words on a CPU: the threads of a block are coroutines that run by turns, each to its next barrier; blocks run one after
// another.
#pragma once
#include <setjmp.h>
#include <ucontext.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>
#define EMULATED
#define launched extern "C" void
#define __device__
#define __forceinline__ inline
#define __restrict__
#define __shared__ static
using std::max, std::min;
static inline float __int_as_float(int x) {
    float y;
    std::memcpy(&y, &x, 4);
    return y;
}
static inline int __float_as_int(float x) {
    int y;
    std::memcpy(&y, &x, 4);
    return y;
}
struct Place {
    unsigned x = 0, y = 0, z = 0;
};
static Place threadIdx, blockIdx, blockDim, gridDim;

// A coroutine begins by its context; then jumps are many times as fast, because they leave signals alone.
struct Coroutine {
    ucontext_t context;
    jmp_buf place;
    bool begun = false;
    std::vector<char> stack = std::vector<char>(1 << 16);
    bool done = false;
};
static std::vector<Coroutine> coroutines;
static ucontext_t first_scheduler;
static jmp_buf scheduler;
static const std::function<void()>* kernel_of_block;
static bool progress;
// Whether a thread has waited for others in this launch. If none has in the first block, the other blocks need no coroutines.
static bool any_waited, without_coroutines;
static float lanes[1024];

static void fail(const char* why) {
    std::fprintf(stderr, "%s\n", why);
    std::exit(1);
}
static void yield() {
    if (!_setjmp(coroutines[threadIdx.x].place)) _longjmp(scheduler, 1);
}
static void resume(Coroutine& own) {
    if (_setjmp(scheduler)) return;
    if (own.begun) _longjmp(own.place, 1);
    own.begun = true;
    swapcontext(&first_scheduler, &own.context);
}

struct Barrier {
    unsigned arrived = 0, epoch = 0;
    void wait(unsigned size) {
        if (without_coroutines) fail("a block waits, and the first one did not");
        any_waited = true;
        unsigned mine = epoch;
        progress = true;
        if (++arrived == size) {
            arrived = 0, epoch++;
        } else {
            while (epoch == mine) yield();
        }
    }
};
static Barrier block_barrier, warp_barriers[32];
static inline void __syncthreads() { block_barrier.wait(blockDim.x); }
static inline float __shfl_xor_sync(unsigned, float x, int mask) {
    unsigned own = threadIdx.x;
    lanes[own] = x;
    warp_barriers[own / 32].wait(32);
    float other = lanes[own ^ mask];
    warp_barriers[own / 32].wait(32);
    return other;
}

static void body() {
    (*kernel_of_block)();
    coroutines[threadIdx.x].done = true;
    progress = true;
    yield();
}

static void start(Place grid, unsigned block, const std::function<void()>& kernel) {
    gridDim = grid, blockDim = {block, 1, 1}, kernel_of_block = &kernel;
    if (coroutines.size() < block) coroutines.resize(block);
    any_waited = without_coroutines = false;
    for (unsigned y = 0; y < grid.y; y++)
        for (unsigned x = 0; x < grid.x; x++) {
            blockIdx = {x, y, 0};
            if (without_coroutines) {
                for (unsigned t = 0; t < block; t++) threadIdx.x = t, kernel();
                continue;
            }
            for (unsigned t = 0; t < block; t++) {
                Coroutine& own = coroutines[t];
                own.done = own.begun = false;
                getcontext(&own.context);
                own.context.uc_stack.ss_sp = own.stack.data();
                own.context.uc_stack.ss_size = own.stack.size();
                makecontext(&own.context, body, 0);
            }
            for (bool any = true; any;) {
                any = progress = false;
                for (unsigned t = 0; t < block; t++)
                    if (!coroutines[t].done) {
                        any = true, threadIdx.x = t;
                        resume(coroutines[t]);
                    }
                if (any && !progress) fail("threads wait for a barrier that others have passed");
            }
            without_coroutines = !any_waited;
        }
}
