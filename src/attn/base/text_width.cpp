#include "attn/base/text_width.h"

#include <algorithm>
#include <cstdint>

#include "attn/base/utf8.h"

namespace attn {
namespace {

struct CodeRange {
  std::uint32_t first, last;
};

constexpr CodeRange kCombining[] = {
    {0x300, 0x36F},   {0x483, 0x489},  {0x591, 0x5BD},   {0x610, 0x61A},   {0x64B, 0x65F},
    {0x900, 0x902},   {0x93C, 0x93C},  {0x941, 0x948},   {0x94D, 0x94D},   {0xE31, 0xE31},
    {0xE34, 0xE3A},   {0xE47, 0xE4E},  {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x20D0, 0x20FF},
    {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
constexpr CodeRange kWide[] = {
    {0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},  {0xA960, 0xA97C}, {0xAC00, 0xD7A3},
    {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},  {0xFFE0, 0xFFE6}, {0x1F300, 0x1F64F},
    {0x1F680, 0x1F6FF}, {0x1F900, 0x1FAFF}, {0x20000, 0x3FFFD}};

std::uint32_t code_of(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (lead < 0x80) return lead;
  std::uint32_t code = lead & (lead >= 0xF0 ? 0x07u : lead >= 0xE0 ? 0x0Fu : 0x1Fu);
  for (const char next : character.substr(1))
    code = code << 6 | (static_cast<unsigned>(next) & 0x3Fu);
  return code;
}

template <std::size_t N>
bool within(const CodeRange (&ranges)[N], std::uint32_t code) {
  return std::any_of(std::begin(ranges), std::end(ranges), [&](const CodeRange& range) {
    return range.first <= code && code <= range.last;
  });
}

std::string_view next_code(std::string_view text, std::size_t at) {
  return text.substr(at, std::max<std::size_t>(utf8_length(text, at), 1));
}

}  // namespace

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> characters;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + next_code(text, i).size();
    while (end < text.size() && within(kCombining, code_of(next_code(text, end))))
      end += next_code(text, end).size();
    characters.push_back(text.substr(i, end - i));
    i = end;
  }
  return characters;
}

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::string_view character = next_code(text, i);
    const std::uint32_t code = code_of(character);
    columns += within(kCombining, code) ? 0 : within(kWide, code) ? 2 : 1;
    i += character.size();
  }
  return columns;
}

std::string cut(std::string_view text, std::size_t columns) {
  if (columns_of(text) <= columns) return std::string(text);
  std::string out;
  std::size_t used = 1;  // the ellipsis
  for (const std::string_view character : characters_of(text)) {
    used += columns_of(character);
    if (used > columns) break;
    out += character;
  }
  return columns == 0 ? "" : out + "…";
}

}  // namespace attn
