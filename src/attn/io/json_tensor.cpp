#include "attn/io/json_tensor.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/io/read_budget.h"

namespace attn {
namespace {

using Path = std::vector<std::size_t>;

std::string to_string(const Path& path) {
  std::string text;
  for (const std::size_t index : path) text.append("[").append(std::to_string(index)).append("]");
  return text;
}

/// The length of an array in any of its forms; nothing for other values.
std::optional<std::size_t> length_of(const Json& json) {
  if (const auto array = json.get<JsonArray>()) return array->size();
  if (const auto integers = json.get<JsonIntegers>()) return integers->size();
  if (const auto floats = json.get<JsonFloats>()) return floats->size();
  return std::nullopt;
}

/// The cell as a number; nothing for other values.
std::optional<Number> number_of(const Json& cell) {
  if (const auto integer = cell.get<std::int64_t>()) return *integer;
  if (const auto large = cell.get<std::uint64_t>()) return *large;
  double number = 0;
  if (cell.as_number(number)) return number;
  return std::nullopt;
}

/// The lengths along the first element of each array; all others must have the same.
Shape shape_along_first(const Json& json) {
  Shape shape;
  const Json* row = &json;
  while (row) {
    const auto length = length_of(*row);
    if (!length) break;
    shape.push_back(*length);
    const auto array = row->get<JsonArray>();
    row = array && !array->empty() ? &array->front() : nullptr;
  }
  return shape;
}

/// Checks that nested arrays are a tensor and determines its shape and dtype.
class Survey {
 public:
  Survey(const Json& json, const std::string& name) : name_(name), shape_(shape_along_first(json)) {
    visit(json);
  }

  const Shape& shape() const { return shape_; }
  DType dtype() const { return boolean_.value_or(false) ? DType::boolean : census_.dtype(name_); }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    Problem problem{.message = what};
    if (!name_.empty()) problem.where = {name_};
    fail_data(std::move(problem));
  }

  std::string here() const { return to_string(path_); }
  std::string first() const { return to_string(Path(path_.size(), 0)); }

  void visit(const Json& json) {
    const std::size_t depth = path_.size();
    const auto length = length_of(json);
    if (depth == shape_.size()) {
      if (length) fail("element " + here() + " is an array, element " + first() + " is not");
      return visit_cell(json);
    }
    if (!length) fail_depth(json.kind());
    if (*length != shape_[depth])
      fail("row " + here() + " has " + counted(*length, "element") + ", row " + first() + " has " +
           std::to_string(shape_[depth]));
    path_.push_back(0);
    if (const auto array = json.get<JsonArray>())
      for (const Json& element : *array) {
        visit(element);
        ++path_.back();
      }
    if (const auto integers = json.get<JsonIntegers>()) visit_numbers(*integers, "an integer");
    if (const auto floats = json.get<JsonFloats>()) visit_numbers(*floats, "a float");
    path_.pop_back();
  }

  [[noreturn]] void fail_depth(const std::string& kind) const {
    fail("element " + here() + " is " + kind + ", row " + first() + " has " +
         counted(shape_[path_.size()], "element"));
  }

  template <class T>
  void visit_numbers(const std::vector<T>& numbers, const std::string& kind) {
    if (path_.size() != shape_.size()) fail_depth(kind);
    require_kind(false);
    for (const T number : numbers) census_.count(number);
  }

  void visit_cell(const Json& cell) {
    const auto number = number_of(cell);
    const bool is_boolean = cell.get<bool>() != nullptr;
    if (!number && !is_boolean) {
      const auto text = cell.get<std::string>();
      const std::string found = text ? "the string '" + printable(*text) + "'" : cell.kind();
      fail((path_.empty() ? "" : "element " + here() + ": ") + "expected a number, found " + found);
    }
    require_kind(is_boolean);
    if (number) census_.count(*number);
  }

  void require_kind(bool is_boolean) {
    const auto name = [](bool boolean) { return boolean ? "a boolean" : "a number"; };
    if (boolean_.value_or(is_boolean) != is_boolean)
      fail("element " + here() + " is " + name(is_boolean) + ", element " + first() + " is " +
           name(!is_boolean));
    boolean_ = is_boolean;
  }

  const std::string& name_;
  Shape shape_;
  Path path_;  ///< index of the current element
  NumberCensus census_;
  std::optional<bool> boolean_;  ///< whether the cells are booleans, if there are any
};

/// Writes the cells, which Survey has checked, to `out`; returns the end.
template <class T>
T* fill(const Json& json, T* out) {
  const auto convert = [](auto value) { return static_cast<T>(value); };
  if (const auto integers = json.get<JsonIntegers>())
    return std::transform(integers->begin(), integers->end(), out, convert);
  if (const auto floats = json.get<JsonFloats>())
    return std::transform(floats->begin(), floats->end(), out, convert);
  if (const auto array = json.get<JsonArray>()) {
    for (const Json& element : *array) out = fill(element, out);
    return out;
  }
  if (const auto boolean = json.get<bool>())
    *out = static_cast<T>(*boolean);
  else
    *out = number_to<T>(*number_of(json));
  return out + 1;
}

}  // namespace

Tensor tensor_from_json(const Json& json, const std::string& name) {
  MemoryCharge unlimited(nullptr, name);
  return tensor_from_json(json, name, unlimited);
}

Tensor tensor_from_json(const Json& json, const std::string& name, MemoryCharge& charge) {
  const Survey survey(json, name);
  charge.add(element_count(survey.shape()), size_of(survey.dtype()));
  Tensor tensor(survey.dtype(), survey.shape());
  attn::visit(tensor.dtype(), [&]<class T>(Type<T>) {
    if constexpr (std::is_arithmetic_v<T>) fill(json, tensor.mutable_data<T>().data());
  });
  return tensor;
}

}  // namespace attn
