#include "attn/examples/show_text.h"

#include "attn/base/error.h"
#include "attn/io/csv.h"
#include "attn/report/ipython_text.h"
#include "attn/report/numpy_text.h"

namespace attn {
namespace {

/// A number as Python prints it, an array as its repr.
std::string item_text(const Tensor& item, const PrintOptions& style) {
  return item.rank() == 0 ? numpy_str(item, style) : numpy_repr(item, style);
}

std::vector<std::string> item_texts(const Show& show, const std::vector<Value>& values) {
  std::vector<std::string> items;
  if (!show.elements) {
    for (const Value& value : values) items.push_back(item_text(value.tensor, show.style));
    return items;
  }
  const Tensor& whole = values[0].tensor;
  if (whole.rank() == 0)
    throw Error(ErrorKind::data, show.values[0].text + ": a single number has no elements");
  for (std::size_t i = 0; i < whole.shape()[0]; ++i)
    items.push_back(item_text(whole.at(i), show.style));
  return items;
}

std::string dimensions(const Show& show, const std::vector<Value>& values) {
  std::string text;
  for (const std::string& item : item_texts(show, values))
    text += (text.empty() ? "(" : "x") + item;
  return text + ")";
}

std::string scalar(const Show& show, const Tensor& tensor) {
  if (tensor.rank() == 0) return numpy_str(tensor, show.style);
  throw Error(ErrorKind::data, show.values[0].text + ": expected a single number, found shape " +
                                   to_string(tensor.shape()));
}

/// Labels are not quoted, as in pandas.
std::string csv(const Show& show, const Tensor& tensor) {
  const Shape labels = {show.rows.size(), show.columns.size()};
  if (tensor.shape() != labels)
    throw Error(ErrorKind::data, show.values[0].text + ": expected shape " + to_string(labels) +
                                     " to match rows and columns, found " +
                                     to_string(tensor.shape()));
  std::string text = show.corner;
  for (const std::string& column : show.columns) text += "," + column;
  text += "\n";
  for (std::size_t i = 0; i < show.rows.size(); ++i)
    text += show.rows[i] + "," + to_csv(tensor.at(i), show.values[0].text);
  return text;
}

}  // namespace

std::string text_of(const Show& show, const std::vector<Value>& values) {
  switch (show.form) {
    case Form::print:
      return numpy_str(values[0].tensor, show.style) + "\n";
    case Form::repr:
      return numpy_repr(values[0].tensor, show.style) + "\n";
    case Form::scalar:
      return scalar(show, values[0].tensor) + "\n";
    case Form::list:
      return ipython_sequence(Sequence::list, item_texts(show, values)) + "\n";
    case Form::tuple:
      return ipython_sequence(Sequence::tuple, item_texts(show, values)) + "\n";
    case Form::dimensions:
      return dimensions(show, values) + "\n";
    case Form::csv:
      return csv(show, values[0].tensor);
    case Form::text:
      break;
  }
  return show.text + "\n";
}

}  // namespace attn
