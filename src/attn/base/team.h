// Processes that compute one job together. Code that shares work talks to the others through this
// interface only, and does not know how they communicate.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace attn {

/// Members are numbered from 0. Functions wait for the other member or members that they involve;
/// all members make the same calls in the same order. They throw if communication fails.
class Team {
 public:
  virtual ~Team() = default;

  virtual std::size_t rank() const = 0;  ///< the number of this member
  virtual std::size_t size() const = 0;

  virtual void send(std::size_t to, std::span<const std::byte> bytes) = 0;
  /// Receives a message of exactly this size.
  virtual void receive(std::size_t from, std::span<std::byte> bytes) = 0;

  /// Member 0's bytes reach all others, which pass memory of the same size.
  virtual void broadcast(std::span<std::byte> bytes) = 0;

  /// Member i has set bytes [ends[i - 1], ends[i]) (from 0 for member 0); afterwards all members
  /// have all of them.
  virtual void exchange(std::span<std::byte> bytes, const std::vector<std::size_t>& ends) = 0;
};

/// Member 0's text, at all members.
std::string broadcast_text(Team& team, std::string text);

/// The texts of all members at member 0; empty at the others.
std::vector<std::string> gather_texts(Team& team, const std::string& text);

}  // namespace attn
