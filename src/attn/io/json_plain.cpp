#include "attn/io/json_plain.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <type_traits>
#include <variant>

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

/// The integers up to here, and these powers of ten, are exact in double.
constexpr std::uint64_t kMostExact = std::uint64_t{1} << 53;
constexpr std::array<double, 19> kPowers = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,
                                            1e7,  1e8,  1e9,  1e10, 1e11, 1e12, 1e13,
                                            1e14, 1e15, 1e16, 1e17, 1e18};

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
        if (next_ != end_ && (*next_ == '-' || is_digit(*next_))) {
          const Number number = read_number();
          if (const auto* whole = std::get_if<std::int64_t>(&number))
            row.add(*whole);
          else if (const auto* decimal = std::get_if<double>(&number))
            row.add(*decimal);
          else if (const auto* natural = std::get_if<std::uint64_t>(&number))
            row.add(Json{*natural});
          else
            return false;
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

  /// std::uint64_t: an integer that std::int64_t does not hold. std::monostate: none.
  using Number = std::variant<std::monostate, std::int64_t, std::uint64_t, double>;

  /// -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)?
  Number read_number() {
    const char* const start = next_;
    if (*next_ == '-') ++next_;
    const char* const first = next_;
    std::uint64_t magnitude = digits(0);
    const std::ptrdiff_t before = next_ - first;
    if (before == 0 || (*first == '0' && before > 1)) return {};
    std::ptrdiff_t after = 0;
    const bool has_point = next_ != end_ && *next_ == '.';
    if (has_point) {
      const char* const fraction = ++next_;
      magnitude = digits(magnitude);
      after = next_ - fraction;
      if (after == 0) return {};
    }
    const bool has_exponent = next_ != end_ && (*next_ == 'e' || *next_ == 'E');
    if (has_exponent) {
      ++next_;
      if (next_ != end_ && (*next_ == '+' || *next_ == '-')) ++next_;
      const char* const exponent = next_;
      digits(0);
      if (next_ == exponent) return {};
    }
    constexpr std::ptrdiff_t kMostDigits = 18;  // `magnitude` has not overflowed
    if (has_exponent || before + after > kMostDigits)
      return has_point || has_exponent ? parsed<double>(start)
                                       : parsed<std::int64_t, std::uint64_t>(start);
    if (!has_point) {
      const auto whole = static_cast<std::int64_t>(magnitude);
      return start == first ? whole : -whole;
    }
    if (magnitude > kMostExact) return parsed<double>(start);
    // Both are exact, so that the quotient is rounded once.
    const double size = static_cast<double>(magnitude) / kPowers[static_cast<std::size_t>(after)];
    return start == first ? size : -size;
  }

  /// The text from `start` to the next character as the first of these types that holds it.
  template <class T, class... Others>
  Number parsed(const char* start) const {
    T number{};
    if (std::from_chars(start, next_, number).ec == std::errc()) return number;
    if constexpr (sizeof...(Others) > 0)
      return parsed<Others...>(start);
    else
      return {};
  }

  bool number(Json& json) {
    return std::visit(
        [&]<class T>(T number) {
          if constexpr (!std::is_same_v<T, std::monostate>) json.emplace<T>(number);
          return !std::is_same_v<T, std::monostate>;
        },
        read_number());
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  /// Appends digits to those of a number, which may overflow.
  std::uint64_t digits(std::uint64_t number) {
    for (; next_ != end_ && is_digit(*next_); ++next_)
      number = 10 * number + static_cast<std::uint64_t>(*next_ - '0');
    return number;
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
