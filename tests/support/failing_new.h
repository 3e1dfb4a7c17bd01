// Memory that runs out on purpose: `operator new` fails where a test wants it to.
#pragma once

#include <cstddef>
#include <functional>

/// Calls `act` again and again: in the first call the first allocation of this thread fails, in the
/// second the second, and so on, once each, until a call needs fewer. Each call shall succeed, or
/// throw std::bad_alloc or an attn::Error; whatever else it throws is passed on. Calls `after`
/// (memory is there again) after each, saying whether it succeeded. Gives the number of
/// allocations that failed.
std::size_t fail_each_allocation(
    const std::function<void()>& act, const std::function<void(bool)>& after = [](bool) {});
