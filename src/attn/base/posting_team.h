// A team whose members also send bytes to each other without waiting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "attn/base/team.h"

namespace attn {

/// What posted bytes are for.
enum class Mailbox : std::uint8_t { requests, replies, progress };

/// Bytes that a member has posted, or a part of them.
struct Parcel {
  std::size_t from = 0;
  std::string bytes;
};

/// Any member may post or take at any time; members need not do so in the same order. Several
/// threads of a member may call these functions at the same time.
class PostingTeam : public Team {
 public:
  /// Starts to send bytes to a member, which may be this one. Those from the same member for the
  /// same mailbox arrive in order, possibly in parts.
  virtual void post(std::size_t to, Mailbox mailbox, std::string bytes) = 0;
  /// Whether posted bytes are still being sent. Large ones move only while it is called.
  virtual bool is_sending() = 0;
  /// What has arrived next, from any member; nullopt if nothing has.
  virtual std::optional<Parcel> take(Mailbox mailbox) = 0;
};

}  // namespace attn
