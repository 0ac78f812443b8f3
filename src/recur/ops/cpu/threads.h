// Threads: independent parts of a job on torch's pool, and a team of threads that runs the steps of a scan in phases.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include "core.h"

// Contention: whether other programs compete for the cores. If the operating system has not scheduled one thread of
// a team, the others wait for it and the call is slower than on one thread. So after several calls with waits that the
// work does not explain, the next calls run on the calling thread alone, and then threads are tried again. Results and
// the order of all sums do not depend on this.
class Contention {
  public:
    using Clock = std::chrono::steady_clock;

    // Report that a thread worked and then waited for threads with about as much work.
    static bool excessive(Clock::duration work, Clock::duration wait) {
        return wait > work / 4 + std::chrono::milliseconds(1);
    }
    static void report() { score_.fetch_add(4, std::memory_order_relaxed); }

    // Return whether this call runs on one thread. Called once per call, because it also counts calls.
    static bool prefers_one_thread() {
        const long score = score_.load(std::memory_order_relaxed), left = calls_left_.load(std::memory_order_relaxed);
        if (left > 0) {
            calls_left_.store(left - 1, std::memory_order_relaxed);
        } else if (score >= 12) {
            score_.store(8, std::memory_order_relaxed);  // one more report, when threads are tried again, is enough
            calls_left_.store(20, std::memory_order_relaxed);
        } else if (score > 0) {
            score_.store(score - 1, std::memory_order_relaxed);
        }
        return left > 0;
    }

  private:
    static inline std::atomic<long> score_{0}, calls_left_{0};
};

// Parts of a job. Each part is taken by the first free thread, so any number of threads may take part. Exceptions do not
// leave a thread; the first one is saved for the caller.
struct Parts {
    std::atomic<long> next{0};
    long count;
    void (*call)(void*, long);
    void* work;
    std::thread::id caller = std::this_thread::get_id();
    Contention::Clock::duration busy{0};  // how long the caller itself worked
    std::atomic<bool> failed{false};
    std::exception_ptr error;

    static void take(void* self) noexcept {
        Parts& parts = *static_cast<Parts*>(self);
        const auto begun = Contention::Clock::now();
        try {
            for (long p; (p = parts.next.fetch_add(1)) < parts.count;) parts.call(parts.work, p);
        } catch (...) {
            parts.next.store(parts.count);  // the other parts are not begun
            if (!parts.failed.exchange(true)) parts.error = std::current_exception();
        }
        if (std::this_thread::get_id() == parts.caller) parts.busy = Contention::Clock::now() - begun;
    }
};

// Run a job on torch's own thread pool if it was found: a second pool would compete with it for the same cores. If all
// parts are `even`, the wait for the last part measures how busy the machine is.
template <typename Job, typename F> void run_parallel(const Job& s, long count, F& work, bool even) {
    Parts parts;
    parts.count = count;
    parts.call = [](void* work, long p) { (*static_cast<F*>(work))(p); };
    parts.work = &work;
    const auto begun = Contention::Clock::now();
    if (s.parallel) {
        s.parallel(Parts::take, &parts, unsigned(count), 0);
    } else {
        std::vector<std::thread> others;
        others.reserve(count);
        try {
            for (long p = 1; p < count; ++p) others.emplace_back(Parts::take, &parts);
        } catch (...) {
        }  // no more threads can be made: those that were do all of the work
        Parts::take(&parts);
        for (std::thread& other : others) other.join();
    }
    if (parts.error) std::rethrow_exception(parts.error);
    if (even && Contention::excessive(parts.busy, Contention::Clock::now() - begun - parts.busy)) Contention::report();
}

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// One thread of a team: when it joined, and how long it has waited since.
struct alignas(64) Member {
    Contention::Clock::time_point begun;
    Contention::Clock::duration waited{0};
    std::atomic<long> next{0};

    // Add a wait from one time to another. Return whether all waits are longer than the work explains.
    bool waits_too_long(Contention::Clock::time_point from, Contention::Clock::time_point to) {
        waited += to - from;
        return Contention::excessive(to - begun - waited, waited);
    }
};

// A team of threads that runs phases, each of `tasks` tasks; a phase begins when the previous one is complete. A thread
// takes its own tasks first, because their data is in the cache of its core, and then tasks that others have not begun.
// So a thread never waits for a thread that is not scheduled, only for a task that another thread has begun. If even
// that takes long, the waiting thread continues alone and the others leave.
class Team {
  public:
    static constexpr long max_members = 64;

    Team(long members, long tasks) : members_(members), tasks_(tasks) {}

    // Run a phase. Returns false if this member is no longer needed.
    template <typename F> bool phase(long member, long index, const F& task) {
        Member& mine = member_[member];
        const auto entered = Contention::Clock::now();
        if (!index) mine.begun = entered;
        for (long turn = 0; turn < members_; ++turn) {
            const long owner = (member + turn) % members_, first = tasks_ * owner / members_;
            const long size = tasks_ * (owner + 1) / members_ - first, end = (index + 1) * size;
            std::atomic<long>& next = member_[owner].next;  // counts on from phase to phase
            for (long t = next.load(std::memory_order_relaxed); t < end;) {
                if (!active(member)) return false;
                if (next.compare_exchange_weak(t, t + 1, std::memory_order_relaxed)) {
                    task(first + t - index * size);
                    done_.fetch_add(1, std::memory_order_release);
                    t = next.load(std::memory_order_relaxed);
                }
            }
        }
        const auto over = [&] {
            return done_.load(std::memory_order_acquire) >= (index + 1) * tasks_ ||
                   only_.load(std::memory_order_relaxed) == nobody;
        };
        for (long spins = 0; spins < max_spins && !over(); ++spins) pause();
        if (over()) return active(member);
        const auto through = Contention::Clock::now();
        for (auto now = through, last = through + (through - entered); !over();) {  // others may have a task more
            std::this_thread::yield();  // the thread that has begun it may need this core
            now = Contention::Clock::now();
            if (now < last) continue;
            const bool too_long = mine.waits_too_long(last, now);
            last = now;
            if (!too_long) continue;
            long all = everybody;
            if (only_.compare_exchange_strong(all, member, std::memory_order_relaxed)) Contention::report();
        }
        return active(member);
    }

    // A member leaves with an exception: its task will never complete, so no one may wait for it.
    void abandon() { only_.store(nobody, std::memory_order_relaxed); }

  private:
    static constexpr long max_spins = 2000, everybody = -1, nobody = max_members;

    Member member_[max_members];
    alignas(64) std::atomic<long> done_{0};
    alignas(64) std::atomic<long> only_{everybody};  // the member that goes on alone
    const long members_, tasks_;

    bool active(long member) const {
        const long only = only_.load(std::memory_order_relaxed);
        return only == everybody || only == member;
    }
};

// Progress of work that several threads continue one after another.
struct alignas(64) Turn {
    std::atomic<long> at;
};

// Tasks that threads begin in a fixed order, and of which some sections must run in that order. A thread waits only for
// tasks that were begun before its own. If even that takes long, the waiting thread continues alone.
class Relay {
  public:
    static constexpr long max_members = 64;

    explicit Relay(long pieces) : pieces_(pieces) {}

    // Return the next task; −1 if there is none for this member.
    long take(long member) {
        const long only = only_.load(std::memory_order_relaxed);
        if (only != everybody && only != member) return -1;
        const long piece = next_.fetch_add(1, std::memory_order_relaxed);
        Member& mine = member_[member];
        if (!mine.next++) mine.begun = Contention::Clock::now();
        return piece < pieces_ ? piece : -1;
    }

    // Wait until a turn has progressed this far; returns false if it never will.
    bool wait(long member, const Turn& turn, long at) {
        const auto come = [&] { return turn.at.load(std::memory_order_acquire) == at; };
        for (long spins = 0; spins < max_spins; ++spins, pause())
            if (come()) return true;
        for (auto last = Contention::Clock::now(); !come();) {
            if (only_.load(std::memory_order_relaxed) == nobody) return false;
            std::this_thread::yield();  // the thread that has to be there first may need this core
            const auto now = Contention::Clock::now();
            const bool too_long = member_[member].waits_too_long(last, now);
            last = now;
            long all = everybody;
            if (too_long && only_.compare_exchange_strong(all, member, std::memory_order_relaxed)) Contention::report();
        }
        return true;
    }

    // A member leaves with an exception: what it has begun will never complete, so no one may wait for it.
    void abandon() { only_.store(nobody, std::memory_order_relaxed); }

  private:
    static constexpr long max_spins = 2000, everybody = -1, nobody = max_members;

    Member member_[max_members];
    alignas(64) std::atomic<long> next_{0};
    alignas(64) std::atomic<long> only_{everybody};  // the member that goes on alone
    const long pieces_;
};
