#include "attn/io/json_parse.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/name.h"
#include "attn/base/text.h"
#include "attn/io/checked_text.h"
#include "attn/io/json_plain.h"

namespace attn {

template <class T>
JsonArray JsonRow::spread(const std::vector<T>& numbers) {
  charge_->add(numbers.size() + 1, sizeof(Json));
  JsonArray array;
  array.reserve(numbers.size() + 1);
  for (const T number : numbers) array.emplace_back(number);
  return array;
}

void JsonRow::add(Json&& element) {
  double number = 0;
  const bool is_number = element.as_number(number);
  const bool is_word = is_number && element.get<std::string>() != nullptr;
  const bool is_large = element.get<std::uint64_t>() != nullptr;  // does not fit JsonIntegers
  const auto integer = element.get<std::int64_t>();
  const auto integers = row_.get<JsonIntegers>();
  const auto floats = row_.get<JsonFloats>();
  const auto array = row_.get<JsonArray>();
  if (empty_ && integer) return add(*integer);
  empty_ = false;

  if (integers && integer) return add(*integer);
  if (floats && is_number) return append(*floats, std::move(number));
  if (is_number && !is_large) {
    if (integers || (array && !is_word && words_ == array->size())) return add_number(number);
  }
  if (integers) row_.emplace<JsonArray>(spread(*integers));
  if (floats) row_.emplace<JsonArray>(spread(*floats));
  auto& elements = *row_.get<JsonArray>();
  if (is_word && words_ == elements.size()) ++words_;
  append(elements, std::move(element));
}

/// Adds a number, before which there are none of its type only.
template <class Numbers>
void JsonRow::add_first(typename Numbers::value_type number) {
  if (!empty_) return add(Json{number});
  charge_->reserve(row_.emplace<Numbers>(), kFewElements);
  empty_ = false;
  add(number);
}

template void JsonRow::add_first<JsonIntegers>(std::int64_t);
template void JsonRow::add_first<JsonFloats>(double);

/// Converts what was added so far, integers or words such as "NaN", to floats.
void JsonRow::add_number(double number) {
  const auto words = row_.get<JsonArray>();
  const std::size_t count = words ? words->size() : row_.get<JsonIntegers>()->size();
  charge_->add(2 * count + 1, sizeof number);
  JsonFloats floats;
  floats.reserve(count + 1);
  if (const auto integers = row_.get<JsonIntegers>()) {
    floats.assign(integers->begin(), integers->end());
  } else {
    for (const Json& word : *words) word.as_number(floats.emplace_back());
  }
  floats.push_back(number);
  row_.emplace<JsonFloats>(std::move(floats));
}

bool JsonKeys::add(std::span<const JsonObject::value_type> members, const std::string& key,
                   MemoryCharge& charge) {
  constexpr std::size_t kFew = 16;  // are compared one by one
  if (members.size() < kFew)
    return std::none_of(members.begin(), members.end(),
                        [&](const auto& member) { return same_name(member.first, key); });
  if (keys_.empty())
    for (const auto& [earlier, value] : members) insert(earlier, charge);
  return insert(key, charge);
}

bool JsonKeys::insert(const std::string& key, MemoryCharge& charge) {
  constexpr std::size_t kNode = 40;  // pointers and colour
  charge.add(kNode + sizeof key + MemoryCharge::kBlock);
  charge.add_string(key.size());
  return keys_.insert(key).second;
}

namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::size_t skip_space(std::string_view text, std::size_t at) {
  return std::min(text.find_first_not_of(kSpace, at), text.size());
}

/// The word or number at `at`, or one of ,:[]{}".
std::string_view word_at(std::string_view text, std::size_t at) {
  const std::size_t end = text.find_first_of(" \t\r\n,:[]{}\"", at);
  return text.substr(at, end == at ? 1 : end - at);
}

/// `word` in quotes; a long word is replaced by its start and its size.
std::string quoted_word(std::string_view word) {
  constexpr std::size_t kMaxLength = 40;
  const bool whole = word.size() <= kMaxLength;
  std::string text = "'";
  text += printable(std::string(word.substr(0, whole ? kMaxLength : kMaxLength / 2)));
  text += whole ? "'" : "...' (" + std::to_string(word.size()) + " bytes)";
  return text;
}

std::string found_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return "the end of the file";
  if (text[at] == '"') return "a string";
  return quoted_word(word_at(text, at));
}

/// Hints for common mistakes that are valid in other languages.
std::string remedy(std::string_view text, std::size_t at, bool after_comma) {
  if (at >= text.size()) return "";
  const std::string_view word = word_at(text, at);
  if (word == "NaN" || word == "nan") return " (write \"NaN\", in double quotes)";
  if (word == "Infinity" || word == "inf") return " (write \"Infinity\", in double quotes)";
  if (word == "-Infinity" || word == "-inf") return " (write \"-Infinity\", in double quotes)";
  if (word[0] == '\'') return " (strings need double quotes)";
  if (word[0] == '/' || word[0] == '#') return " (JSON has no comments)";
  if (after_comma && (word[0] == ']' || word[0] == '}')) return " (one comma too many)";
  return "";
}

bool starts_json_number(char c) { return c == '-' || (c >= '0' && c <= '9'); }

/// An invalid string that starts at `start`.
Problem explain_string(const JsonSyntaxError& error, std::size_t start) {
  const std::size_t last = error.read - 1;  // the first invalid character
  if (last >= error.text.size())
    return problem_at(error.text, start, "the string that starts here is not closed");
  if (static_cast<unsigned char>(error.text[last]) < 0x20)
    return problem_at(error.text, last,
                      "a line break or control character inside a string (write \\n or \\u00XX)");
  return problem_at(error.text, last,
                    "expected an escape: \\\" \\\\ \\/ \\b \\f \\n \\r \\t or \\uXXXX (a "
                    "surrogate only in a pair), found " +
                        quoted_word(error.text.substr(last, 1)));
}

struct Expectation {
  std::string what;
  std::size_t at;  ///< the offset at which it was expected
  bool after_comma = false;
};

/// What may follow at the error, after the ',' or ':' if there is one.
Expectation expectation(const JsonSyntaxError& error) {
  const std::size_t at = skip_space(error.text, error.good);
  const char next = at < error.text.size() ? error.text[at] : '\0';
  const std::size_t beyond = skip_space(error.text, at + 1);
  switch (error.state) {
    case JsonState::start:
      return {"a value", at};
    case JsonState::end:
      return {"the end of the document", at};
    case JsonState::array_start:
      return {"a value or ']'", at};
    case JsonState::array_value:
      return next == ',' ? Expectation{"a value", beyond, true} : Expectation{"',' or ']'", at};
    case JsonState::object_start:
      return {"a key in double quotes or '}'", at};
    case JsonState::object_key:
      return next == ':' ? Expectation{"a value", beyond} : Expectation{"':'", at};
    case JsonState::object_value:
      break;
  }
  return next == ',' ? Expectation{"a key in double quotes", beyond, true}
                     : Expectation{"',' or '}'", at};
}

}  // namespace

Problem syntax_problem(const JsonSyntaxError& error) {
  const std::string_view text = error.text;
  const auto [what, at, after_comma] = expectation(error);
  const bool inside = at < text.size();
  const bool value = what.starts_with("a value");
  if (inside && text[at] == '"' && (value || what.starts_with("a key")))
    return explain_string(error, at);
  if (inside && at > 0 && text[at - 1] == '0' && text[at] >= '0' && text[at] <= '9')
    return problem_at(text, at, "expected a number without leading zeros");
  const std::string wanted = inside && value && starts_json_number(text[at]) ? "a number" : what;
  return problem_at(
      text, at,
      "expected " + wanted + ", found " + found_at(text, at) + remedy(text, at, after_comma));
}

Problem overflow_problem(std::string_view text, std::size_t at) {
  const std::string_view word = word_at(text, at);
  const bool integer = word.find_first_of(".eE") == std::string_view::npos;
  return problem_at(text, at,
                    std::string("expected a number that fits ") +
                        (integer ? "64 bits" : "a float64") + ", found " + quoted_word(word) +
                        (integer ? " (write it with a '.' for a float)" : ""));
}

namespace {

/// nlohmann refuses integers that exceed a double. Returns the text with spaces for their digits
/// from the 301st on, so that no position changes; nullopt if there are no such integers.
std::optional<std::string> with_short_integers(std::string_view text) {
  constexpr std::size_t kMost = 300;
  const auto end_of_digits = [&](std::size_t at) {
    return std::min(text.find_first_not_of("0123456789", at), text.size());
  };
  std::optional<std::string> shortened;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') in_string = !in_string;
    if (in_string && text[at] == '\\') ++at;
    const std::size_t end = in_string ? at : end_of_digits(at);
    if (end == at) continue;
    const auto touches = [&](std::size_t i, std::string_view characters) {
      return i < text.size() && characters.find(text[i]) != std::string_view::npos;
    };
    const bool is_part = touches(at - 1, ".eE+") || touches(end, ".eE") ||
                         (touches(at - 1, "-") && touches(at - 2, "eE"));
    if (end - at > kMost && !is_part) {
      if (!shortened) shortened.emplace(text);
      std::fill(shortened->begin() + static_cast<std::ptrdiff_t>(at + kMost),
                shortened->begin() + static_cast<std::ptrdiff_t>(end), ' ');
    }
    at = end - 1;
  }
  return shortened;
}

/// The document and nlohmann's position in it. A line break is appended, so that a character
/// follows each number; nlohmann reads one character past a number.
struct Source {
  std::string_view text;
  std::size_t read = 0;
};

class SourceIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  SourceIterator(Source& source, std::size_t at) : source_(&source), at_(at) {}
  char operator*() const { return at_ < source_->text.size() ? source_->text[at_] : '\n'; }
  SourceIterator& operator++() {
    source_->read = ++at_;
    return *this;
  }
  bool operator==(const SourceIterator& other) const { return at_ == other.at_; }

 private:
  Source* source_;
  std::size_t at_;
};

/// Builds a Json from nlohmann's events, with stricter checks.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// `text` is the document with all digits of its integers.
  Builder(const Source& source, std::string_view text, const std::string& name,
          MemoryCharge& charge)
      : source_(source), text_(text), name_(name), charge_(charge) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(Json{nullptr}); }
  bool boolean(bool value) override { return add(Json{value}); }
  bool number_integer(std::int64_t value) override { return add_number(Json{value}); }
  bool number_unsigned(std::uint64_t value) override {
    if (std::in_range<std::int64_t>(value)) return number_integer(static_cast<std::int64_t>(value));
    return add_number(Json{value});
  }
  bool number_float(double value, const std::string& token) override {
    // Integers that do not fit 64 bits arrive as rounded floats.
    if (token.find_first_of(".eE") != std::string::npos) return add_number(Json{value});
    if (!is_of_seed()) fail(overflow_problem(text_, token_start()));
    const std::string_view digits = word_at(text_, token_start());
    charge_.add_string(digits.size());
    return add_number(Json{std::string(digits)});
  }
  bool string(std::string& value) override {
    charge_.add_string(value.size());
    return add(Json{std::move(value)});
  }
  bool binary(nlohmann::json::binary_t&) override { return false; }  // not in JSON text

  bool start_object(std::size_t) override { return open(Open{.object = JsonObject{}}); }
  bool start_array(std::size_t) override { return open(Open{.array = JsonRow(charge_)}); }
  bool end_object() override { return close(Json{std::move(*open_.back().object)}); }
  bool end_array() override { return close(open_.back().array->take()); }

  bool key(std::string& value) override {
    Open& object = open_.back();
    if (!object.keys.add(*object.object, value, charge_))
      fail(problem_at(source_.text, token_start(),
                      "the key '" + printable(value) + "' occurs twice"));
    object.key = std::move(value);
    good_ = source_.read;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    constexpr int kNumberOverflow = 406;
    if (e.id == kNumberOverflow) fail(overflow_problem(source_.text, token_start()));
    fail(syntax_problem({source_.text, state(), good_, source_.read}));
  }

 private:
  /// An array or object that is being read.
  struct Open {
    std::optional<JsonRow> array = {};
    std::optional<JsonObject> object = {};
    std::optional<std::string> key = {};  ///< the key whose value is next
    JsonKeys keys = {};
  };

  [[noreturn]] void fail(Problem problem) const {
    if (!name_.empty()) problem.where = {name_};
    fail_data(std::move(problem));
  }

  /// Whether the next value is that of a key "seed", or in its list.
  bool is_of_seed() const {
    auto inner = open_.rbegin();
    if (inner != open_.rend() && inner->array) ++inner;
    return inner != open_.rend() && inner->key == "seed";
  }

  /// Only white space and one separator precede the next token.
  std::size_t token_start() const { return source_.text.find_first_not_of(" \t\r\n,:", good_); }

  bool open(Open&& container) {
    if (open_.size() == kMaxJsonDepth)
      fail(problem_at(source_.text, token_start(),
                      "nested deeper than " + std::to_string(kMaxJsonDepth) + " levels"));
    open_.push_back(std::move(container));
    good_ = source_.read;
    return true;
  }

  bool close(Json&& value) {
    open_.pop_back();
    return add(std::move(value));
  }

  bool add(Json&& value) {
    good_ = source_.read;
    if (open_.empty()) {
      root_ = std::move(value);
      ended_ = true;
    } else if (Open& parent = open_.back(); parent.array) {
      parent.array->add(std::move(value));
    } else {
      charge_.grow(*parent.object);
      parent.object->emplace_back(std::move(*parent.key), std::move(value));
      parent.key.reset();
    }
    return true;
  }

  bool add_number(Json&& value) {
    add(std::move(value));
    good_ = source_.read - 1;  // nlohmann has read the character after it
    return true;
  }

  JsonState state() const {
    if (open_.empty()) return ended_ ? JsonState::end : JsonState::start;
    const Open& inner = open_.back();
    if (inner.array) return inner.array->empty() ? JsonState::array_start : JsonState::array_value;
    if (inner.key) return JsonState::object_key;
    return inner.object->empty() ? JsonState::object_start : JsonState::object_value;
  }

  const Source& source_;
  std::string_view text_;
  const std::string& name_;
  MemoryCharge& charge_;
  std::vector<Open> open_;
  Json root_;
  bool ended_ = false;
  std::size_t good_ = 0;  ///< end of the last valid token
};

}  // namespace

Json parse_json(std::string_view text, const std::string& name) {
  MemoryCharge unlimited(nullptr, name);
  return parse_json(text, name, unlimited);
}

namespace {

/// Bytes of the longest string as it is written, without quotes.
std::size_t longest_string(std::string_view text) {
  std::size_t longest = 0;
  for (std::size_t at = 0; (at = text.find('"', at)) != text.npos;) {
    const std::size_t size = size_in_quotes(text.substr(++at));
    longest = std::max(longest, size);
    at = std::min(at + size + 1, text.size());
  }
  return longest;
}

}  // namespace

Json parse_json(std::string_view text, const std::string& name, MemoryCharge& charge) {
  const std::string_view checked = checked_text(text, name);
  const std::size_t before = charge.bytes();
  if (std::optional<Json> json = parse_plain_json(checked, charge)) return *std::move(json);
  charge.release_to(before);
  // nlohmann parses documents with rare features and reports errors in all others.
  const std::optional<std::string> shortened = with_short_integers(checked);
  if (shortened) charge.add(shortened->size());
  constexpr std::size_t kGrowth = 3;  // nlohmann's buffer for strings, while it grows
  const std::size_t buffer = kGrowth * longest_string(checked);
  charge.add(buffer);
  Source source{shortened ? std::string_view(*shortened) : checked};
  Builder builder(source, checked, name, charge);
  nlohmann::json::sax_parse(SourceIterator(source, 0),
                            SourceIterator(source, source.text.size() + 1), &builder);
  charge.release_to(charge.bytes() - buffer);
  return builder.take();
}

}  // namespace attn
