// Processes that compute together: the ranks of an MPI program, or threads in tests. Code that
// shares work talks to the others through this interface only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace attn {

/// What posted bytes are for.
enum class Mailbox : std::uint8_t { requests, replies, progress };

/// Bytes that a member has posted, or a part of them.
struct Parcel {
  std::size_t from = 0;
  std::string bytes;
};

/// Members are numbered from 0. Functions throw if communication fails.
class Team {
 public:
  virtual ~Team() = default;

  virtual std::size_t rank() const = 0;  ///< the number of this member
  virtual std::size_t size() const = 0;

  // These wait for the other member or members that they involve; all members make the same calls
  // in the same order.

  virtual void send(std::size_t to, std::span<const std::byte> bytes) = 0;
  /// Receives a message of exactly this size.
  virtual void receive(std::size_t from, std::span<std::byte> bytes) = 0;

  /// Member 0's bytes reach all others, which pass memory of the same size.
  virtual void broadcast(std::span<std::byte> bytes) = 0;

  /// Member i has set bytes [ends[i - 1], ends[i]) (from 0 for member 0); afterwards all members
  /// have all of them.
  virtual void exchange(std::span<std::byte> bytes, const std::vector<std::size_t>& ends) = 0;

  // Any member may post or take at any time; members need not do so in the same order. Several
  // threads of a member may call these functions at the same time.

  /// Starts to send bytes to a member, which may be this one. Those from the same member for the
  /// same mailbox arrive in order, possibly in parts.
  virtual void post(std::size_t to, Mailbox mailbox, std::string bytes) = 0;
  /// Whether posted bytes are still being sent. Large ones move only while it is called.
  virtual bool is_sending() = 0;
  /// What has arrived next, from any member; nullopt if nothing has.
  virtual std::optional<Parcel> take(Mailbox mailbox) = 0;
};

/// Member 0's text, at all members.
std::string broadcast_text(Team& team, std::string text);

/// The texts of all members at member 0; empty at the others.
std::vector<std::string> gather_texts(Team& team, const std::string& text);

}  // namespace attn
