#include "attn/io/json_parse.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/io/checked_text.h"
#include "attn/io/json_containers.h"
#include "attn/io/json_fault.h"
#include "attn/io/json_plain.h"

namespace attn {
namespace {

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
  Builder(const Source& source, const std::string& name, MemoryCharge& charge)
      : source_(source), name_(name), charge_(charge) {}

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
    if (token.find_first_of(".eE") == std::string::npos)
      fail(explain_overflow(source_.text, token_start()));
    return add_number(Json{value});
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
    if (e.id == kNumberOverflow) fail(explain_overflow(source_.text, token_start()));
    fail(explain({source_.text, place(), good_, source_.read}));
  }

 private:
  /// An array or object that is being read.
  struct Open {
    std::optional<JsonRow> array = {};
    std::optional<JsonObject> object = {};
    std::optional<std::string> key = {};  ///< whose value comes next
    JsonKeys keys = {};
  };

  [[noreturn]] void fail(Problem problem) const {
    if (!name_.empty()) problem.where = {name_};
    throw Error(ErrorKind::data, std::move(problem));
  }

  /// Only white space and one separator precede the next token.
  std::size_t token_start() const { return source_.text.find_first_not_of(" \t\r\n,:", good_); }

  bool open(Open&& container) {
    if (open_.size() == kDeepestJson)
      fail(problem_at(source_.text, token_start(),
                      "nested deeper than " + std::to_string(kDeepestJson) + " levels"));
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

  JsonPlace place() const {
    if (open_.empty()) return ended_ ? JsonPlace::end : JsonPlace::start;
    const Open& inner = open_.back();
    if (inner.array) return inner.array->empty() ? JsonPlace::array_start : JsonPlace::array_value;
    if (inner.key) return JsonPlace::object_key;
    return inner.object->empty() ? JsonPlace::object_start : JsonPlace::object_value;
  }

  const Source& source_;
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

Json parse_json(std::string_view text, const std::string& name, MemoryCharge& charge) {
  const std::string_view checked = checked_text(text, name);
  const std::size_t before = charge.bytes();
  if (std::optional<Json> json = parse_plain_json(checked, charge)) return *std::move(json);
  charge.release_to(before);
  // nlohmann reads rare features, and finds what is wrong with the rest.
  Source source{checked};
  Builder builder(source, name, charge);
  nlohmann::json::sax_parse(SourceIterator(source, 0),
                            SourceIterator(source, source.text.size() + 1), &builder);
  return builder.take();
}

}  // namespace attn
