// Simulates lack of memory: `operator new` fails at chosen allocations.
#pragma once

#include <cstddef>
#include <functional>

/// Calls `act` repeatedly. In the n-th call, the n-th allocation of this thread fails; stops when a
/// call makes fewer allocations. Each call must succeed or throw std::bad_alloc or attn::Error;
/// other exceptions are passed on. After each call, calls `after` with whether it succeeded;
/// allocations do not fail then. Returns the number of allocations that failed.
std::size_t fail_each_allocation(
    const std::function<void()>& act, const std::function<void(bool)>& after = [](bool) {});
