// Locks that are held for less time than it takes to sleep and to be woken.
#pragma once

#include <mutex>
#include <thread>

namespace attn {

/// Locks a mutex that others mostly hold for a fraction of a microsecond: looks again and again
/// before it sleeps. Small jobs take ten microseconds; asleep, workers would wait for each other
/// as long.
inline std::unique_lock<std::mutex> short_lock(std::mutex& mutex) {
  constexpr int kLooks = 50;
  std::unique_lock lock(mutex, std::try_to_lock);
  for (int looks = 0; !lock && looks < kLooks; ++looks) {
    std::this_thread::yield();
    if (lock.try_lock()) return lock;
  }
  if (!lock) lock.lock();
  return lock;
}

}  // namespace attn
