#include "attn/examples/check.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/examples/evaluate.h"
#include "attn/examples/printed_numbers.h"
#include "attn/io/file.h"

namespace attn {
namespace {

std::string joined(std::span<const std::string> lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

/// The printed numbers of each value; nothing if their number differs from that of the elements.
std::optional<std::vector<std::vector<PrintedNumber>>> numbers_by_value(
    const Show& show, const std::vector<Value>& values, const std::string& text) {
  // The header of a CSV may contain numbers ("Unnamed: 0").
  const std::size_t start = show.form == Form::csv ? text.find('\n') + 1 : 0;
  const auto numbers = printed_numbers(std::string_view(text).substr(start));
  std::vector<std::vector<PrintedNumber>> groups;
  auto next = numbers.begin();
  for (const Value& value : values) {
    const auto left = static_cast<std::size_t>(numbers.end() - next);
    if (value.tensor.size() > left) return std::nullopt;
    const auto end = next + static_cast<std::ptrdiff_t>(value.tensor.size());
    groups.emplace_back(next, end);
    next = end;
  }
  return next == numbers.end() ? std::optional(groups) : std::nullopt;
}

/// Whether the digits identify the element: the float32 nearest to 0.1 is printed as 0.1, though
/// its value is 0.100000001.
bool reads_as(const PrintedNumber& number, double value, DType dtype) {
  const Tensor read = cast(Tensor::of<double>({1}, {number.value}), dtype);
  return cast(read, DType::f64).data<double>()[0] == value;
}

/// Describes the first value that differs from the printed one, or "".
std::string different_number(const Show& show, const std::vector<Value>& values,
                             const std::vector<std::vector<PrintedNumber>>& printed) {
  for (std::size_t v = 0; v < values.size(); ++v) {
    const Tensor numbers = cast(values[v].tensor, DType::f64);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      if (!is_printed_as(numbers.data<double>()[i], printed[v][i]) &&
          !reads_as(printed[v][i], numbers.data<double>()[i], values[v].tensor.dtype()))
        return show.values[v].text + ": value " + std::to_string(i + 1) + ": expected " +
               printed[v][i].text + ", found " + python_repr(numbers.data<double>()[i]);
  }
  return "";
}

std::string different_line(const std::string& expected, const std::string& found) {
  const auto wanted = split_lines(expected), got = split_lines(found);
  const auto [want, have] = std::mismatch(wanted.begin(), wanted.end(), got.begin(), got.end());
  const auto shown = [](auto line, auto end) {
    return line == end ? std::string("no more lines") : "'" + printable(*line) + "'";
  };
  return "line " + std::to_string(want - wanted.begin() + 1) + ": expected " +
         shown(want, wanted.end()) + ", found " + shown(have, got.end());
}

/// Describes the first difference between the computed and the printed result, or "".
std::string difference(const Shown& shown, const std::string& expected, ChosenSigns& signs) {
  const Show& show = *shown.show;
  std::vector<Value> values = shown.values;
  if (const auto printed = numbers_by_value(show, values, expected)) {
    for (std::size_t v = 0; v < values.size(); ++v)
      if (values[v].singular) {
        std::vector<double> numbers;
        for (const PrintedNumber& number : (*printed)[v]) numbers.push_back(number.value);
        values[v].tensor = with_printed_signs(values[v], numbers, signs);
      }
    const std::string different = different_number(show, values, *printed);
    if (!different.empty()) return different;
  }
  const std::string text = text_of(show, values);
  return text == expected ? "" : different_line(expected, text);
}

/// Describes what is not compared, or "".
std::string exclusions(const Evaluation& evaluation) {
  const std::vector<bool>* longest = nullptr;
  for (const Shown& shown : evaluation.shown)
    for (const Value& value : shown.values)
      if (value.singular &&
          (longest == nullptr || value.singular->determined.size() > longest->size()))
        longest = &value.singular->determined;
  if (longest == nullptr) return "";
  return "; signs, and vectors of equal or zero singular values, are not unique: compared " +
         std::to_string(std::count(longest->begin(), longest->end(), true)) + " of " +
         std::to_string(longest->size()) +
         " vectors up to sign; checked that all are orthonormal and that U diag(s) Vt is the "
         "matrix";
}

std::string summary_of(const Example& example, const Evaluation& evaluation) {
  const auto count = std::count_if(evaluation.shown.begin(), evaluation.shown.end(),
                                   [](const Shown& s) { return s.show->form != Form::text; });
  return std::to_string(count) + (count == 1 ? " result" : " results") + exclusions(evaluation) +
         (example.note.empty() ? "" : "; " + example.note);
}

}  // namespace

CheckResult check_text(const Example& example, const Evaluation& evaluation,
                       const std::string& expected) {
  for (const Decomposition& decomposition : evaluation.decompositions)
    if (const std::string flaw = find_flaw(decomposition); !flaw.empty()) return {false, flaw};

  const std::vector<std::string> lines = split_lines(expected);
  std::span<const std::string> rest = lines;
  const auto take = [&rest](std::size_t count) {
    const auto taken = rest.first(std::min(count, rest.size()));
    rest = rest.subspan(taken.size());
    return joined(taken);
  };

  ChosenSigns signs;
  const Cell* cell = nullptr;
  for (const Shown& shown : evaluation.shown) {
    if (cell != nullptr && cell != shown.cell && take(1) != "\n")
      return {false, "expected.txt: expected an empty line after " + cell->label};
    cell = shown.cell;
    const std::string different = difference(shown, take(split_lines(shown.text).size()), signs);
    if (!different.empty()) return {false, cell->label + ": " + different};
  }
  if (!expected.ends_with('\n')) return {false, "expected.txt: expected a newline at its end"};
  if (!rest.empty())
    return {false, "expected.txt: more text than results: '" + printable(rest[0]) + "'"};
  return {true, summary_of(example, evaluation)};
}

CheckResult check_example(const std::string& folder) {
  try {
    const Example example = read_example(folder);
    const std::string path = (std::filesystem::path(folder) / "expected.txt").string();
    const FileBytes expected = read_file(path);
    return check_text(example, evaluate(example), std::string(expected.text()));
  } catch (const Error& error) {
    return {false, error.lines()[0]};
  }
}

}  // namespace attn
