#include <cmath>
#include <type_traits>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/io/csv.h"

namespace attn {
namespace {

template <class T>
void append_cell(std::string& out, T value) {
  if constexpr (std::is_same_v<T, bool>) {
    out += value ? '1' : '0';
  } else if constexpr (std::is_integral_v<T>) {
    append_number(out, value);
  } else if (const auto wide = static_cast<double>(value); std::isfinite(wide)) {
    append_number(out, value);
  } else {
    out += std::isnan(wide) ? "nan" : wide > 0 ? "inf" : "-inf";
  }
}

/// Quotes where they are needed to read the same text back.
void append_name(std::string& out, const std::string& name) {
  const bool plain = !name.empty() && name.find_first_of(",\"\r\n\t; ") == std::string::npos;
  if (plain) {
    out += name;
    return;
  }
  out += '"';
  for (const char c : name) {
    if (c == '"') out += '"';
    out += c;
  }
  out += '"';
}

struct Names {
  const std::vector<std::string>&rows, &columns;
};

std::string matrix_text(const Tensor& tensor, const std::string& name, const Names* names) {
  if (tensor.rank() > 2 || tensor.size() == 0)
    throw Error(ErrorKind::data, Problem{.where = {name},
                                         .message = "CSV holds one matrix, found shape " +
                                                    to_string(tensor.shape())});
  const std::size_t columns = tensor.rank() == 0 ? 1 : tensor.shape().back();
  const std::size_t rows = tensor.size() / columns;
  std::string out;
  if (names) {
    if (names->rows.size() != rows || names->columns.size() != columns)
      throw Error(ErrorKind::internal, name + ": names for another shape");
    for (const std::string& column : names->columns) append_name(out += ',', column);
    out += '\n';
  }
  visit(tensor.dtype(), [&]<class T>(Type<T>) {
    const auto cells = tensor.data<T>();
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (names && i % columns == 0) append_name(out, names->rows[i / columns]);
      if (names || i % columns > 0) out += ',';
      append_cell(out, cells[i]);
      if ((i + 1) % columns == 0) out += '\n';
    }
  });
  return out;
}

}  // namespace

std::string to_csv(const Tensor& tensor, const std::string& name) {
  return matrix_text(tensor, name, nullptr);
}

std::string to_csv(const Tensor& tensor, const std::string& name,
                   const std::vector<std::string>& rows, const std::vector<std::string>& columns) {
  const Names names{rows, columns};
  return matrix_text(tensor, name, &names);
}

}  // namespace attn
