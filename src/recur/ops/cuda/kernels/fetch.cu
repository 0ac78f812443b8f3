// Numbers on their way from the GPU's memory into shared memory, many steps before they are needed: nothing waits for
// them but `arrived`. A thread reads what it fetched itself, so there is no barrier. 4, 8 or 16 bytes come at once.
template <int bytes> FUNCTION void fetch_bytes(void* to, const void* from) {
    const unsigned at = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(bytes) : "memory");
}

// What was fetched since the last call is a group.
FUNCTION void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all groups but the last so many are there.
template <int later> FUNCTION void arrived() { asm volatile("cp.async.wait_group %0;" ::"n"(later) : "memory"); }

// 16 bytes of a row, past the nearest cache, which they would only pass through; zero where there are none.
FUNCTION void fetch_or_zero(byte* to, const void* from, bool there) {
    const unsigned at = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(there ? 16 : 0) : "memory");
}
