// Identities of files that several processes note in memory that they share.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <optional>
#include <vector>

#include "attn/io/used_files.h"

namespace attn {

/// Files in the order in which places were taken for them. Shared memory of zeros is an empty list,
/// whose pages are in memory only once they are used.
class SharedFileIds {
 public:
  static constexpr std::size_t kMost = std::size_t{1} << 22;

  /// Files beyond kMost are left out.
  void add(const FileId& id) { put(take_place(), id); }

  /// The two steps of add(). A process that is killed between them leaves a place without a file.
  std::size_t take_place() { return count_.fetch_add(1); }
  void put(std::size_t place, const FileId& id) {
    if (place >= kMost) return;
    slots_[place].id = id;
    slots_[place].is_written = true;
  }

  std::size_t places() const { return count_ < kMost ? count_.load() : kMost; }
  /// Nothing if the file is not written yet.
  std::optional<FileId> at(std::size_t place) const {
    return slots_[place].is_written ? std::optional(slots_[place].id) : std::nullopt;
  }

 private:
  struct Slot {
    FileId id;
    std::atomic<bool> is_written = false;
  };
  static_assert(std::atomic<bool>::is_always_lock_free);
  std::atomic<std::size_t> count_ = 0;
  std::array<Slot, kMost> slots_ = {};
};

/// Reads each file of a list once.
class SharedFileIdReader {
 public:
  /// Passes the files that were written since the last call to `handle`.
  template <class Handle>
  void read(const SharedFileIds& ids, Handle&& handle) {
    const auto is_read = [&](std::size_t place) {
      const std::optional<FileId> id = ids.at(place);
      if (id) handle(*id);
      return id.has_value();
    };
    std::erase_if(unwritten_, is_read);
    for (const std::size_t places = ids.places(); next_ < places; ++next_)
      if (!is_read(next_)) unwritten_.push_back(next_);
  }

 private:
  std::vector<std::size_t> unwritten_;  ///< places below next_ to look at again
  std::size_t next_ = 0;
};

}  // namespace attn
