#include "attn-mpi/team.h"

#include <cstdint>

namespace attn {
namespace {

std::span<std::byte> bytes_of_text(std::string& text) {
  return std::as_writable_bytes(std::span(text));
}

}  // namespace

std::string broadcast_text(Team& team, std::string text) {
  std::uint64_t size = text.size();
  team.broadcast(std::as_writable_bytes(std::span(&size, 1)));
  text.resize(size);
  if (size > 0) team.broadcast(bytes_of_text(text));
  return text;
}

std::vector<std::string> gather_texts(Team& team, const std::string& text) {
  std::vector<std::string> texts;
  if (team.rank() > 0) {
    const std::uint64_t size = text.size();
    team.send(0, std::as_bytes(std::span(&size, 1)));
    if (size > 0) team.send(0, std::as_bytes(std::span(text)));
    return texts;
  }
  texts.push_back(text);
  for (std::size_t member = 1; member < team.size(); ++member) {
    std::uint64_t size = 0;
    team.receive(member, std::as_writable_bytes(std::span(&size, 1)));
    texts.emplace_back(size, '\0');
    if (size > 0) team.receive(member, bytes_of_text(texts.back()));
  }
  return texts;
}

}  // namespace attn
