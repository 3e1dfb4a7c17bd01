#include "attn/io/json_plain.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "attn/io/json_parse.h"

namespace attn {

std::size_t size_in_quotes(std::string_view text) {
  for (std::size_t at = 0; (at = text.find_first_of("\"\\", at)) != text.npos; at += 2)
    if (text[at] == '"') return at;
  return text.size();
}

namespace {

/// The characters that must be escaped in a string: control characters, " and \.
constexpr std::array<bool, 256> kSpecial = [] {
  std::array<bool, 256> special{};
  for (std::size_t c = 0; c < special.size(); ++c) special[c] = c < 0x20 || c == '"' || c == '\\';
  return special;
}();

/// Each function reads one item at the next character and moves past it, or returns false.
class PlainJsonReader {
 public:
  PlainJsonReader(std::string_view text, MemoryCharge& charge)
      : next_(text.data()), end_(next_ + text.size()), charge_(charge) {}

  bool document(Json& json) {
    if (!value(json, 0)) return false;
    skip_space();
    return next_ == end_;
  }

 private:
  bool value(Json& json, std::size_t depth) {
    skip_space();
    if (next_ == end_) return false;
    switch (*next_) {
      case '{':
        return object(json.emplace<JsonObject>(), depth);
      case '[':
        return array(json, depth);
      case '"':
        return string(json.emplace<std::string>());
      case 't':
        json.emplace<bool>(true);
        return word("true");
      case 'f':
        json.emplace<bool>(false);
        return word("false");
      case 'n':
        json.emplace<std::nullptr_t>(nullptr);
        return word("null");
      default:
        return number(json);
    }
  }

  bool object(JsonObject& members, std::size_t depth) {
    if (depth == kMaxJsonDepth) return false;
    ++next_;
    if (take('}')) return true;
    JsonKeys keys;
    charge_.reserve(members, kFewElements);
    do {
      skip_space();
      if (next_ == end_ || *next_ != '"') return false;
      charge_.grow(members);
      auto& [name, json] = members.emplace_back(std::string(), Json{});
      if (!string(name) || !keys.add(std::span(members).first(members.size() - 1), name, charge_) ||
          !take(':') || !value(json, depth + 1))
        return false;
    } while (take(','));
    return take('}');
  }

  bool array(Json& json, std::size_t depth) {
    if (depth == kMaxJsonDepth) return false;
    ++next_;
    JsonRow row(charge_);
    if (!take(']')) {
      do {
        skip_space();
        if (std::int64_t whole; integer(whole)) {
          row.add(whole);
          continue;
        }
        Json element;
        if (!value(element, depth + 1)) return false;
        row.add(std::move(element));
      } while (take(','));
      if (!take(']')) return false;
    }
    json = row.take();
    return true;
  }

  bool string(std::string& text) {
    const auto is_special = [](char c) { return kSpecial[static_cast<unsigned char>(c)]; };
    bool is_charged = false;
    for (++next_;; ++next_) {
      const char* const start = next_;
      next_ = std::find_if(start, end_, is_special);
      if (next_ == end_ || (*next_ != '"' && *next_ != '\\')) return false;
      if (!is_charged) {  // before memory is allocated
        const std::size_t size =
            *next_ == '"' ? static_cast<std::size_t>(next_ - start) : size_in_quotes({start, end_});
        charge_.add_string(size);
        text.reserve(size);
        is_charged = true;
      }
      text.append(start, next_);
      if (*next_ == '"') break;
      if (++next_ == end_) return false;
      constexpr std::string_view kNames = "\"\\/bfnrt", kCharacters = "\"\\/\b\f\n\r\t";
      const std::size_t escape = kNames.find(*next_);
      if (escape == std::string_view::npos) return false;
      text += kCharacters[escape];
    }
    ++next_;
    return true;
  }

  /// -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)?
  bool number(Json& json) {
    const char* const start = next_;
    if (*next_ == '-') ++next_;
    const char* const first = next_;
    if (!digits() || (*first == '0' && next_ - first > 1)) return false;
    const char* const whole = next_;
    if (next_ != end_ && *next_ == '.' && (++next_, !digits())) return false;
    if (next_ != end_ && (*next_ == 'e' || *next_ == 'E')) {
      ++next_;
      if (next_ != end_ && (*next_ == '+' || *next_ == '-')) ++next_;
      if (!digits()) return false;
    }
    const auto read = [&](auto& result) {
      return std::from_chars(start, next_, result).ec == std::errc();
    };
    if (next_ != whole) return read(json.emplace<double>());
    return read(json.emplace<std::int64_t>()) || read(json.emplace<std::uint64_t>());
  }

  /// An integer of at most 18 digits. All other values are left to value().
  bool integer(std::int64_t& whole) {
    const bool is_negative = next_ != end_ && *next_ == '-';
    const char* const first = next_ + (is_negative ? 1 : 0);
    const char* end = first;
    std::uint64_t magnitude = 0;
    for (; end != end_ && *end >= '0' && *end <= '9'; ++end)
      magnitude = 10 * magnitude + static_cast<std::uint64_t>(*end - '0');
    if (end != end_ && (*end == '.' || *end == 'e' || *end == 'E')) return false;
    if (end == first || end - first > 18 || (*first == '0' && end - first > 1)) return false;
    const auto number = static_cast<std::int64_t>(magnitude);
    whole = is_negative ? -number : number;
    next_ = end;
    return true;
  }

  bool digits() {
    const char* const start = next_;
    while (next_ != end_ && *next_ >= '0' && *next_ <= '9') ++next_;
    return next_ != start;
  }

  bool word(std::string_view word) {
    if (!std::string_view(next_, end_).starts_with(word)) return false;
    next_ += word.size();
    return true;
  }

  bool take(char c) {
    skip_space();
    if (next_ == end_ || *next_ != c) return false;
    ++next_;
    return true;
  }

  void skip_space() {
    const auto is_space = [](char c) {  // most characters are above ' '
      return c <= ' ' && (c == ' ' || c == '\n' || c == '\r' || c == '\t');
    };
    while (next_ != end_ && is_space(*next_)) ++next_;
  }

  const char* next_;
  const char* const end_;
  MemoryCharge& charge_;
};

}  // namespace

std::optional<Json> parse_plain_json(std::string_view text, MemoryCharge& charge) {
  Json json;
  if (!PlainJsonReader(text, charge).document(json)) return std::nullopt;
  return json;
}

}  // namespace attn
