// Messages between the main process of a batch and its worker processes: numbers as in memory, and
// texts that begin with their size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "attn/base/packing.h"
#include "attn/batch/item.h"

namespace attn {

/// An item, with its sequence number among the items that were started.
struct Assignment {
  std::size_t sequence = 0;
  Item item = {};
};

/// From the main process to a worker.
struct WorkerRequest {
  enum class Kind : std::uint64_t {
    item,       ///< run this item
    withdrawn,  ///< do not run the items before this message; some return them
    memory,     ///< answers an AskForMemory
    end,        ///< there are no more items (for workers that end by themselves)
  };
  Kind kind = Kind::item;
  Assignment assignment = {};
  bool is_granted = false;
};

struct AskForMemory {
  std::size_t bytes = 0;  ///< in total
  bool wait = false;
};

/// From a worker to the main process.
struct WorkerReply {
  enum class Kind : std::uint64_t {
    outcome,
    question,  ///< an AskForMemory
    returned,  ///< the item was withdrawn and has not been started
    workers,   ///< how many items the process runs at a time
  };
  Kind kind = Kind::outcome;
  std::size_t sequence = 0;  ///< of the outcome or the returned item
  Outcome outcome = {};      ///< without its name and number
  AskForMemory ask = {};
  std::size_t workers = 0;
};

void append_item(std::string& out, std::size_t sequence, const Item& item);
void append_withdrawal(std::string& out);
void append_memory_answer(std::string& out, bool is_granted);
void append_end(std::string& out);
void append_outcome(std::string& out, std::size_t sequence, const Outcome& outcome);
void append_question(std::string& out, const AskForMemory& ask);
void append_return(std::string& out, std::size_t sequence);
void append_workers(std::string& out, std::size_t workers);

/// Removes one message from the front of `bytes`. Returns nullopt if it is incomplete. Throws
/// BadMessage.
std::optional<WorkerRequest> take_request(std::string_view& bytes);
/// `text_buffer` becomes the outcome's text.
std::optional<WorkerReply> take_reply(std::string_view& bytes, std::string text_buffer);

}  // namespace attn
