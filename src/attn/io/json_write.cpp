#include "attn/io/json_write.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "attn/base/error.h"
#include "attn/base/name.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/base/utf8.h"

namespace attn {

void fail_kind(const Json& expected, const Json* found) {
  fail_data({.expected = expected.kind(), .found = found == nullptr ? "nothing" : found->kind()});
}

const Json* Json::find(std::string_view key) const {
  if (const auto object = get<JsonObject>())
    for (const auto& [name, member] : *object)
      if (same_name(name, key)) return &member;
  return nullptr;
}

bool Json::is_array() const { return get<JsonArray>() || get<JsonIntegers>() || get<JsonFloats>(); }

std::string Json::kind() const {
  if (is_array()) return "an array";
  if (get<JsonObject>()) return "an object";
  if (get<std::string>()) return "a string";
  if (get<bool>()) return "a boolean";
  if (get<std::nullptr_t>()) return "null";
  return get<double>() ? "a float" : "an integer";
}

bool Json::as_number(double& number) const {
  if (const auto word = get<std::string>()) return parse_non_finite(*word, number);
  if (const auto float_number = get<double>())
    number = *float_number;
  else if (const auto integer = get<std::int64_t>())
    number = static_cast<double>(*integer);
  else if (const auto large = get<std::uint64_t>())
    number = static_cast<double>(*large);
  else
    return false;
  return true;
}

namespace {

template <class T>
void append_cell(std::string& out, T value) {
  if constexpr (std::is_same_v<T, bool>) {
    out += value ? "true" : "false";
  } else if constexpr (std::is_integral_v<T>) {
    append_number(out, value);
  } else if (const auto wide = static_cast<double>(value); std::isfinite(wide)) {
    append_number(out, wide);
  } else {
    out += '"';
    out += non_finite_name(wide);
    out += '"';
  }
}

/// ASCII characters that need no escape in strings.
constexpr std::array<bool, 256> kPlain = [] {
  std::array<bool, 256> plain{};
  for (std::size_t c = 0x20; c < 0x7F; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}();

std::size_t plain_length(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && kPlain[static_cast<unsigned char>(text[end])]) ++end;
  return end - at;
}

/// The escape of a code point; above U+FFFF, those of its two UTF-16 units.
void append_escape(std::string& out, std::uint32_t code) {
  const auto append_unit = [&](std::uint32_t unit) {
    append_hex(out += "\\u", static_cast<std::uint8_t>(unit >> 8));
    append_hex(out, static_cast<std::uint8_t>(unit & 0xFF));
  };
  if (code > 0xFFFF) append_unit(0xD800 + ((code - 0x10000) >> 10));
  append_unit(code > 0xFFFF ? 0xDC00 + (code & 0x3FF) : code);
}

/// Characters that a terminal would not show as they are, such as direction marks, are escaped.
void append_quoted(std::string& out, std::string_view text) {
  if (plain_length(text, 0) == text.size()) {  // as most are
    const std::size_t begin = out.size();
    out.resize(begin + text.size() + 2, '"');
    std::copy(text.begin(), text.end(), out.begin() + static_cast<std::ptrdiff_t>(begin) + 1);
    return;
  }
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    if (const std::size_t plain = plain_length(text, i); plain > 0) {
      out.append(text, i, plain);
      i += plain;
      continue;
    }
    const std::size_t length = utf8_length(text, i);
    const char c = text[i];
    if (length == 0)
      out += "\uFFFD";
    else if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (const std::uint32_t code = code_point(text, i); is_invisible(code))
      append_escape(out, code);
    else
      out.append(text, i, length);
    i += length == 0 ? 1 : length;
  }
  out += '"';
}

/// Writes a value. `indent` < 0: compact; otherwise members of objects, and elements that are
/// objects or lists, have their own lines, indented by two columns per level.
class JsonWriter {
 public:
  JsonWriter(std::string& out, int indent) : out_(out), on_lines_(indent >= 0), column_(indent) {}

  void write(const Json& json) {
    std::visit(
        [&]<class T>(const T& value) {
          if constexpr (std::is_same_v<T, std::nullptr_t>)
            out_ += "null";
          else if constexpr (std::is_same_v<T, std::string>)
            append_quoted(out_, value);
          else if constexpr (std::is_same_v<T, JsonObject>)
            list('{', value, '}', on_lines_);
          else if constexpr (std::is_same_v<T, JsonArray>)
            list('[', value, ']', on_lines_ && std::any_of(value.begin(), value.end(), is_nested));
          else if constexpr (std::is_arithmetic_v<T>)
            append_cell(out_, value);
          else
            list('[', value, ']', false);
        },
        json.value());
  }

 private:
  static bool is_nested(const Json& json) {
    return json.is_array() || json.get<JsonObject>() != nullptr;
  }

  template <class List>
  void list(char open, const List& items, char close, bool on_lines) {
    const bool is_spaced = on_lines_ && !on_lines;
    out_ += open;
    column_ += 2;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += ',';
      if (!first && is_spaced) out_ += ' ';
      if (on_lines) break_line();
      element(item);
      first = false;
    }
    column_ -= 2;
    if (on_lines && !first) break_line();
    out_ += close;
  }

  template <class T>
  void element(const T& item) {
    if constexpr (std::is_same_v<T, Json>) {
      write(item);
    } else if constexpr (std::is_arithmetic_v<T>) {
      append_cell(out_, item);
    } else {  // a member of an object
      append_quoted(out_, item.first);
      out_ += ':';
      if (on_lines_) out_ += ' ';
      write(item.second);
    }
  }

  void break_line() {
    out_ += '\n';
    out_.append(static_cast<std::size_t>(column_), ' ');
  }

  std::string& out_;
  bool on_lines_;
  int column_;
};

/// Writes the elements of a tensor in order, with brackets around each axis.
template <class T>
class TensorWriter {
 public:
  TensorWriter(std::string& out, const Tensor& tensor, int indent)
      : out_(out), shape_(tensor.shape()), next_(tensor.data<T>().data()), indent_(indent) {}

  void write(std::size_t axis = 0) {
    if (axis == shape_.size()) return append_cell(out_, *next_++);
    const bool on_lines = indent_ >= 0 && axis + 1 < shape_.size() && shape_[axis] > 0;
    const bool is_spaced = !on_lines && indent_ >= 0;
    out_ += '[';
    for (std::size_t i = 0; i < shape_[axis]; ++i) {
      if (i > 0) out_ += ',';
      if (i > 0 && is_spaced) out_ += ' ';
      if (on_lines) break_line(static_cast<int>(axis));
      write(axis + 1);
    }
    if (on_lines) break_line(static_cast<int>(axis) - 1);
    out_ += ']';
  }

 private:
  /// Elements of axis 0 are indented by `indent` columns, each further axis by two more.
  void break_line(int axis) {
    const int column = indent_ + 2 * axis;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(std::max(column, 0)), ' ');
  }

  std::string& out_;
  const Shape& shape_;
  const T* next_;
  int indent_;
};

/// A shape without elements takes no space in a file, but can have more empty rows than can be
/// written.
void refuse_empty_rows(const Shape& shape) {
  constexpr std::size_t kMaxEmptyRows = 1'000'000;
  std::size_t rows = 1;
  for (const std::size_t extent : shape) {
    if (extent == 0 && rows > kMaxEmptyRows)
      fail_data("shape " + to_string(shape) + " has too many rows without elements");
    if (extent == 0) return;
    rows = extent > kMaxEmptyRows / rows ? kMaxEmptyRows + 1 : rows * extent;
  }
}

}  // namespace

void append_json(std::string& out, const Json& json, int indent) {
  JsonWriter(out, indent).write(json);
}

void append_json(std::string& out, const Tensor& tensor, int indent) {
  refuse_empty_rows(tensor.shape());
  visit(tensor.dtype(), [&]<class T>(Type<T>) { TensorWriter<T>(out, tensor, indent).write(); });
}

std::string to_json(const Json& json, int indent) {
  std::string out;
  append_json(out, json, indent);
  return out;
}

std::string to_json(const Tensor& tensor, int indent) {
  std::string out;
  append_json(out, tensor, indent);
  return out;
}

Json json_strings(const std::vector<std::string>& texts) {
  JsonArray array;
  for (const std::string& text : texts) array.push_back(Json{text});
  return Json{std::move(array)};
}

std::string json_quoted(std::string_view text) {
  std::string out;
  append_quoted(out, text);
  return out;
}

}  // namespace attn
