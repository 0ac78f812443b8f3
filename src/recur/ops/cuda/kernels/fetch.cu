// Asynchronous copies from global to shared memory, many steps before the numbers are needed.
//
// Only `arrived` waits for them. A thread reads what it fetched itself, so no barrier is needed. A copy has 4, 8 or 16
// bytes.
template <int bytes> FUNCTION void fetch_bytes(void* to, const void* from) {
    const unsigned at = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(bytes) : "memory");
}

// Close a group: all copies since the previous call.
FUNCTION void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait for all groups except the last `later` ones.
template <int later> FUNCTION void arrived() { asm volatile("cp.async.wait_group %0;" ::"n"(later) : "memory"); }

// Copy 16 bytes without caching them in L1, where they would only pass through; write zeros if `there` is false.
FUNCTION void fetch_or_zero(byte* to, const void* from, bool there) {
    const unsigned at = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(there ? 16 : 0) : "memory");
}
