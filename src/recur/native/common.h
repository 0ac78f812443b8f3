// What does not depend on the instruction set: memory, threads, and the names of operations and places.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "core.h"

// Python reads these lists by name when it loads the library, so their order is no one else's business.
#define OPERATIONS(X) \
    X(copy) X(neg) X(add) X(sub) X(mul) X(div) X(multiply_add) X(multiply_sub) X(sub_multiply) X(relu) X(sigmoid) X(sigmoid_sum) \
    X(tanh) X(tanh_sum) X(d_sigmoid) X(d_tanh) X(exp) X(log) X(log1p) X(expm1) X(sqrt) X(sin) X(cos) X(erf) X(abs) X(sign) \
    X(less) X(less_equal) X(equal) X(select) X(minimum) X(maximum) X(sum)
#define PLACES(X) \
    X(temp) X(constant) X(extra) X(share) X(kept) X(product) X(before) X(after) X(d_after) X(d_share) X(d_product) \
    X(d_before) X(sum)
#define AS_NAME(name) name,
#define AS_TEXT(name) #name " "

// A piece of memory handed out from its start. A copy hands out from where the original stood.
class Arena {
  public:
    explicit Arena(void* base) : base_(reinterpret_cast<std::uintptr_t>(base)) {}
    template <typename T> T* take(long count) {
        used_ = (used_ + 63) / 64 * 64;
        T* at = reinterpret_cast<T*>(base_ + used_);
        used_ += long(sizeof(T)) * count;
        return at;
    }
    long used() const { return used_ + 64; }

  private:
    std::uintptr_t base_;
    long used_ = 0;
};

// Large pages for large memory that was not touched yet: a fresh page costs about as much as filling it.
inline void prefer_large_pages(void* memory, long bytes) {
#if defined(__linux__)
    const std::uintptr_t page = 2 << 20, at = reinterpret_cast<std::uintptr_t>(memory);
    const std::uintptr_t from = (at + page - 1) / page * page, to = (at + bytes) / page * page;
    if (memory && to > from) madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

// Whether the cores have other things to do. Threads that wait for one which does not run lose more than they gain; so
// after some calls with waits that work does not explain, the next ones are done by the calling thread alone, and then it
// is tried again. What is computed, and in which order it is summed, stays the same.
class Crowd {
  public:
    using Clock = std::chrono::steady_clock;

    // Someone worked and then waited for others, who had about as much to do.
    static bool shows(Clock::duration work, Clock::duration wait) {
        return wait > work / 4 + std::chrono::milliseconds(1);
    }
    static void seen() { signs_.fetch_add(4, std::memory_order_relaxed); }

    // Asked, and counted, once a call: whether to do it alone.
    static bool leaves_us_alone() {
        const long signs = signs_.load(std::memory_order_relaxed), alone = alone_.load(std::memory_order_relaxed);
        if (alone > 0) {
            alone_.store(alone - 1, std::memory_order_relaxed);
        } else if (signs >= 12) {
            signs_.store(8, std::memory_order_relaxed);  // one more, when it is tried again, is enough
            alone_.store(20, std::memory_order_relaxed);
        } else if (signs > 0) {
            signs_.store(signs - 1, std::memory_order_relaxed);
        }
        return alone > 0;
    }

  private:
    static inline std::atomic<long> signs_{0}, alone_{0};
};

// Parts of a job, each taken by whichever thread comes first: right for any number of threads that turn up.
struct Parts {
    std::atomic<long> next{0};
    long count;
    void (*call)(void*, long);
    void* work;
    std::thread::id caller = std::this_thread::get_id();
    Crowd::Clock::duration busy{0};  // how long the caller itself worked

    static void take(void* self) {
        Parts& parts = *static_cast<Parts*>(self);
        const auto begun = Crowd::Clock::now();
        for (long p; (p = parts.next.fetch_add(1)) < parts.count;) parts.call(parts.work, p);
        if (std::this_thread::get_id() == parts.caller) parts.busy = Crowd::Clock::now() - begun;
    }
};

// On torch's own threads where they were found: a second pool on the same cores would fight with it.
// Where all parts are `even`, the wait for the last says something about the machine.
template <typename F> void run_parallel(const Scan& s, long count, F& work, bool even) {
    Parts parts;
    parts.count = count;
    parts.call = [](void* work, long p) { (*static_cast<F*>(work))(p); };
    parts.work = &work;
    const auto begun = Crowd::Clock::now();
    if (s.parallel) {
        s.parallel(Parts::take, &parts, unsigned(count), 0);
    } else {
        std::vector<std::thread> others;
        for (long p = 1; p < count; ++p) others.emplace_back(Parts::take, &parts);
        Parts::take(&parts);
        for (std::thread& other : others) other.join();
    }
    if (even && Crowd::shows(parts.busy, Crowd::Clock::now() - begun - parts.busy)) Crowd::seen();
}

// Threads that go through phases together, each of them `tasks` pieces of work. A thread takes what is its own first, since
// that lies in its core's cache, and then what others have not begun. The next phase begins when all of this one is
// done: nobody waits for a thread that does not run, only for work that one has begun. Where even that takes long, who
// waited goes on alone.
class Team {
  public:
    static constexpr long most = 64;

    Team(long members, long tasks) : members_(members), tasks_(tasks) {}

    // False for who is not needed any more.
    template <typename F> bool phase(long member, long index, const F& task) {
        Share& mine = shares_[member];
        const auto entered = Crowd::Clock::now();
        if (!index) mine.begun = entered;
        for (long turn = 0; turn < members_; ++turn) {
            const long whose = (member + turn) % members_, first = tasks_ * whose / members_;
            const long size = tasks_ * (whose + 1) / members_ - first, end = (index + 1) * size;
            std::atomic<long>& next = shares_[whose].next;  // counts on from phase to phase
            for (long t = next.load(std::memory_order_relaxed); t < end;) {
                if (!stays(member)) return false;
                if (next.compare_exchange_weak(t, t + 1, std::memory_order_relaxed)) {
                    task(first + t - index * size);
                    done_.fetch_add(1, std::memory_order_release);
                    t = next.load(std::memory_order_relaxed);
                }
            }
        }
        const auto all_done = [&] { return done_.load(std::memory_order_acquire) >= (index + 1) * tasks_; };
        for (long looks = 0; looks < patience && !all_done(); ++looks) pause();
        if (all_done()) return stays(member);
        const auto through = Crowd::Clock::now();
        for (auto now = through, last = through + (through - entered); !all_done();) {  // others may have a task more to do
            std::this_thread::yield();  // who has begun it may need this core
            now = Crowd::Clock::now();
            if (now < last) continue;
            mine.waited += now - last;
            last = now;
            if (!Crowd::shows(now - mine.begun - mine.waited, mine.waited)) continue;
            long nobody = -1;
            if (alone_.compare_exchange_strong(nobody, member, std::memory_order_relaxed)) Crowd::seen();
        }
        return stays(member);
    }

  private:
    static constexpr long patience = 2000;

    struct alignas(64) Share {
        std::atomic<long> next{0};
        Crowd::Clock::time_point begun;  // when its owner came, and how long it has waited since
        Crowd::Clock::duration waited{0};
    };
    Share shares_[most];
    alignas(64) std::atomic<long> done_{0};
    alignas(64) std::atomic<long> alone_{-1};
    const long members_, tasks_;

    bool stays(long member) const {
        const long alone = alone_.load(std::memory_order_relaxed);
        return alone < 0 || alone == member;
    }
    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
};
