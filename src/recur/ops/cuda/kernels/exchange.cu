// Exchange of the vector v (h in the forward pass, δ in the backward pass) between the CTAs of a team: see persistent.cu.
//
// CLUSTER: a CTA writes its part of v straight into the shared memory of the others with st.async. Each store counts its
// bytes on the receiver's mbarrier, so data and notice arrive together and no fence is needed. Two buffers alternate: a
// CTA can only publish step k + 1 after it has received step k from all others, so nobody still reads the buffer of k − 1.
//
// GRID: a CTA writes its part to global memory (L2) and adds 1 to a counter with release order. A reader spins on the
// counter with acquire order until all CTAS parts of the step are there, then copies v into shared memory in chunks. The
// copies run through the async proxy, which has its own view of memory: fence.proxy.async stands on both sides.

FUNCTION bits32 shared_address(const void* p) { return bits32(__cvta_generic_to_shared(p)); }

#if __CUDA_ARCH__ >= 900
FUNCTION void barrier_init(bits32 at, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
FUNCTION void barrier_expect(bits32 at, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
FUNCTION void barrier_wait(bits32 at, int phase) {
    bits32 done;
    do {
        asm volatile(
            "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n}" : "=r"(done) : "r"(at), "r"(phase) : "memory");
    } while (!done);
}
FUNCTION bits32 of_rank(bits32 at, int rank) {
    bits32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    return there;
}
FUNCTION void send(bits32 to, bits32 barrier, uint4 v) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier) : "memory");
}
FUNCTION void barrier_arrive(bits32 there) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
}
FUNCTION void copy_in(bits32 to, const void* from, int bytes, bits32 barrier) {
#if MULTICAST > 1
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::
            "r"(to), "l"(from), "r"(bytes), "r"(barrier), "h"(bits16((1 << MULTICAST) - 1)) : "memory");
#else
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier) : "memory");
#endif
}
FUNCTION void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#endif
FUNCTION void flag_add(unsigned* at) { asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(at) : "memory"); }
FUNCTION unsigned flag_read(const unsigned* at) {
    unsigned found;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(at) : "memory");
    return found;
}

// Channel by which a team passes v from step to step.
struct Exchange {
    Shared& shared;
    byte* memory;       // GRID: two buffers of V_BYTES for this team
    unsigned* arrived;  // GRID: number of parts written so far
    int cta, turn;      // number of published vectors
    int taken;          // GRID: number of chunks received before the current vector

    FUNCTION Exchange(Shared& s, int which) : shared(s), memory(nullptr), arrived(nullptr), cta(which), turn(0), taken(0) {}

    FUNCTION void begin() {
        if (EXCHANGE != GRID)  // padding is multiplied too: it must be zero, not NaN
            for (int i = threadIdx.x; i < RING * CHUNK_BYTES / 16; i += THREADS)
                reinterpret_cast<uint4*>(shared.v)[i] = {0, 0, 0, 0};
#if __CUDA_ARCH__ >= 900
        if (EXCHANGE != SINGLE_CTA && threadIdx.x == 0) {
            for (int i = 0; i < RING; ++i) {
                barrier_init(shared_address(&shared.full[i]), 1);
                barrier_init(shared_address(&shared.empty[i]), THREADS / 32 * MULTICAST);
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
            if (EXCHANGE == CLUSTER)
                for (int i = 0; i < RING; ++i) barrier_expect(shared_address(&shared.full[i]), V_PUBLISHED);
        }
        if (EXCHANGE == CLUSTER || MULTICAST > 1) sync_cluster();
#endif
        __syncthreads();
    }

    FUNCTION void join(num* all, unsigned* counters, int team) {
        if (EXCHANGE != GRID) return;
        memory = reinterpret_cast<byte*>(all) + long(team) * 2 * V_BYTES;
        arrived = counters + team * 32;
        turn = 0;
    }

#if __CUDA_ARCH__ >= 900
    // GRID: one thread requests a chunk of the current vector, after all warps have released its buffer.
    FUNCTION void ask(int c) {
        const int n = taken + c, buffer = n % RING, use = n / RING;
        if (use) barrier_wait(shared_address(&shared.empty[buffer]), (use - 1) & 1);
        const bits32 barrier = shared_address(&shared.full[buffer]);
        barrier_expect(barrier, CHUNK_BYTES);
        constexpr int PIECE = CHUNK_BYTES / MULTICAST;
        const int piece = MULTICAST > 1 ? cta % MULTICAST * PIECE : 0;
        const byte* from = memory + ((turn - 1) & 1) * V_BYTES + c * CHUNK_BYTES + piece;
        copy_in(shared_address(shared.v[buffer] + piece), from, PIECE, barrier);
    }
#endif

    // Index of the buffer that was published last.
    FUNCTION int last() const { return (turn - 1) & 1; }

    // CLUSTER: wait until all bytes of this step have arrived, and arm the barrier for its next use.
    FUNCTION void wait_for_bytes() {
#if __CUDA_ARCH__ >= 900
        const bits32 full = shared_address(&shared.full[last()]);
        barrier_wait(full, ((turn - 1) >> 1) & 1);
        if (EXTRA_BARRIER) __syncthreads();
        if (threadIdx.x == 0) barrier_expect(full, V_PUBLISHED);
#endif
    }

    // PARTIAL: send this thread's part of a tile of sums to the CTA that owns the units.
    FUNCTION void send_sums(int tile, int n, uint4 found) {
#if PARTIAL && __CUDA_ARCH__ >= 900
        const int lane = threadIdx.x & 31, owner = tile / (UNITS / 16);
        if (n * 8 + (lane & 3) * 2 >= USED) return;
        const float* at = shared.mail[last()][cta] + mail_slot(tile % (UNITS / 16), n, lane >> 2, (lane & 3) * 2);
        send(of_rank(shared_address(at), owner), of_rank(shared_address(&shared.full[last()]), owner), found);
#endif
    }

    // Wait until the sums of the current step can be read.
    FUNCTION void sums_ready(int k, bool multiplied) {
        if (PARTIAL) {
            if (multiplied) wait_for_bytes();
        } else if (!MISSING_BARRIER)
            __syncthreads();
        delay(k, 1 + threadIdx.x / 32);
    }

    // Return a chunk of v of the previous step.
    FUNCTION const byte* receive(int c) {
        if (EXCHANGE == CLUSTER) {
            if (!PARTIAL) wait_for_bytes();
            return shared.v[last()];
        }
        if (EXCHANGE == GRID) {
#if __CUDA_ARCH__ >= 900
            if (c == 0 && threadIdx.x == 0) {
                while (flag_read(arrived) < unsigned(CTAS) * turn) {
                }
                asm volatile("fence.proxy.async;" ::: "memory");
                for (int i = 0; i < (RING < CHUNKS ? RING : CHUNKS); ++i) ask(i);
            }
            const int n = taken + c;
            barrier_wait(shared_address(&shared.full[n % RING]), n / RING & 1);
            return shared.v[n % RING];
#else
            static_assert(EXCHANGE != GRID || CHUNKS == 1, "chunks need copies that tell when they are done");
            if (threadIdx.x == 0)
                while (flag_read(arrived) < unsigned(CTAS) * turn) {
                }
            __syncthreads();
            const byte* from = memory + ((turn - 1) & 1) * V_BYTES;
            for (int i = threadIdx.x; i < V_BYTES / 16; i += THREADS)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared.v[0] + i * 16)),
                             "l"(from + i * 16) : "memory");
            asm volatile("cp.async.wait_all;" ::: "memory");
            __syncthreads();
#endif
        }
        return shared.v[0];
    }

    // Release a chunk after this warp has read it.
    FUNCTION void release(int c) {
#if __CUDA_ARCH__ >= 900
        if (EXCHANGE != GRID) return;
        const int lane = threadIdx.x & 31;
        __syncwarp();
        if (lane < MULTICAST) {
            const bits32 mine = shared_address(&shared.empty[(taken + c) % RING]);
            barrier_arrive(of_rank(mine, MULTICAST > 1 ? lane : rank()));
        }
        // One chunk late: by then the other warps have probably released that buffer, and the wait is short.
        if (threadIdx.x == 0 && c && c - 1 + RING < CHUNKS) ask(c - 1 + RING);
        if (c == CHUNKS - 1) taken += CHUNKS;
#endif
    }

    FUNCTION static int rank() {
        int found;
        asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(found));
        return found;
    }

    // Write the next v's values of one element; all threads of a warp call this together, to send 16 bytes at a time.
    FUNCTION void publish(int e, const num (&values)[PARTS]) {
        const int index = threadIdx.x + e * THREADS;
        if (EXCHANGE == CLUSTER && !PARTIAL) {
#if __CUDA_ARCH__ >= 900
            const int lane = threadIdx.x & 31, base = index - lane, to = turn & 1;
            constexpr int SENT = 32 / PER_CHUNK;
            num(*stage)[32] = shared.stage[threadIdx.x / 32];
#pragma unroll
            for (int part = 0; part < PARTS; ++part) stage[part][lane] = values[part];
            __syncwarp();
            if (base < UNITS * USED) {
#pragma unroll
                for (int q = lane; q < PARTS * SENT * CTAS; q += 32) {
                    const int piece = q % SENT, part = q / SENT % PARTS, there = q / (SENT * PARTS);
                    const uint4 found = *reinterpret_cast<const uint4*>(stage[part] + piece * PER_CHUNK);
                    const byte* at = shared.v[to] + place(base + piece * PER_CHUNK, part);
                    const bits32 barrier = shared_address(&shared.full[to]);
                    send(of_rank(shared_address(at), there), of_rank(barrier, there), found);
                }
            }
            __syncwarp();
#endif
        } else if (index < UNITS * USED) {
            byte* v = EXCHANGE == GRID ? memory + (turn & 1) * V_BYTES : shared.v[PARTIAL ? turn & 1 : 0];
#pragma unroll
            for (int part = 0; part < PARTS; ++part) *reinterpret_cast<num*>(v + place(index, part)) = values[part];
        }
    }

    // Byte offset of one of this CTA's values in v.
    FUNCTION int place(int index, int part) const {
        const int first = PARTIAL ? part * UNITS : part * WIDTH + cta * UNITS, row = index / UNITS;
        const int bytes = (first + index % UNITS) * SIZE;
        if (CHUNKS == 1) return row * PITCH + bytes;
        return bytes / (CHUNK * 64) * CHUNK_BYTES + row * PITCH + bytes % (CHUNK * 64);
    }

    // Announce that this CTA's part is complete.
    FUNCTION void published() {
        ++turn;
        if (EXCHANGE == SINGLE_CTA || PARTIAL) __syncthreads();
        if (EXCHANGE == GRID) {
#if __CUDA_ARCH__ >= 900
            asm volatile("fence.proxy.async;" ::: "memory");
#endif
            __syncthreads();
            if (threadIdx.x == 0) flag_add(arrived);
        }
    }

    FUNCTION void end() {
#if __CUDA_ARCH__ >= 900
        if (EXCHANGE == CLUSTER || MULTICAST > 1) sync_cluster();
#endif
    }
};
