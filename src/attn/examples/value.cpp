#include "attn/examples/value.h"

#include <charconv>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/tensor/rearrange.h"

namespace attn {
namespace {

/// Parses a reference from left to right. Each take…() consumes only what it recognises.
class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  bool done() const { return at_ == text_.size(); }

  bool take(const std::string& symbol) {
    if (text_.compare(at_, symbol.size(), symbol) != 0) return false;
    at_ += symbol.size();
    return true;
  }

  std::string take_name() {
    const std::size_t end = std::min(text_.find_first_of(".[", at_), text_.size());
    const std::string name = text_.substr(at_, end - at_);
    at_ = end;
    return name;
  }

  bool take_index(std::size_t& index) {
    const char* end = text_.data() + text_.size();
    const auto [rest, error] = std::from_chars(text_.data() + at_, end, index);
    if (error != std::errc()) return false;
    at_ = static_cast<std::size_t>(rest - text_.data());
    return take("]");
  }

 private:
  const std::string& text_;
  std::size_t at_ = 0;
};

bool take_access(Reader& reader, Access& access) {
  using Kind = Access::Kind;
  if (reader.take("[")) {
    access.kind = Kind::index;
    return reader.take_index(access.index);
  }
  if (!reader.take(".")) return false;
  const std::string name = reader.take_name();
  if (name == "T")
    access.kind = Kind::transpose;
  else if (name == "joined")
    access.kind = Kind::joined;
  else if (name == "shape")
    access.kind = Kind::shape;
  else if (name == "sum")
    access.kind = Kind::sum;
  else
    return false;
  return true;
}

}  // namespace

Reference parse_reference(const std::string& text, const std::string& where) {
  const Error malformed(
      ErrorKind::data,
      where + ": expected RESULT.VALUE, then [INDEX], .T, .joined, .shape or .sum, found '" +
          printable(text) + "'");
  Reader reader(text);
  Reference reference;
  reference.text = text;
  reference.result = reader.take_name();
  if (reference.result.empty() || !reader.take(".")) throw malformed;
  reference.value = reader.take_name();
  if (reference.value.empty()) throw malformed;
  while (!reader.done()) {
    Access access;
    if (!take_access(reader, access)) throw malformed;
    reference.accesses.push_back(access);
  }
  return reference;
}

namespace {

[[noreturn]] void fail(const Reference& reference, const std::string& what) {
  fail_data(reference.text + ": " + what);
}

Tensor transpose(const Tensor& matrix) {
  const std::size_t m = matrix.shape()[0], n = matrix.shape()[1];
  Tensor result(matrix.dtype(), {n, m});
  visit(matrix.dtype(), [&]<class T>(Type<T>) {
    const auto from = matrix.data<T>();
    const auto to = result.mutable_data<T>();
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) to[j * m + i] = from[i * n + j];
  });
  return result;
}

/// (H, M, D) -> (M, H*D)
Tensor join_heads(const Tensor& heads) {
  const Shape& shape = heads.shape();
  return side_by_side(heads.reshaped({1, shape[0], shape[1], shape[2]})).at(0);
}

Tensor shape_tensor(const Shape& shape) {
  return Tensor::of<std::int64_t>({shape.size()}, {shape.begin(), shape.end()});
}

void require_rank(const Value& value, std::size_t rank, const Reference& reference) {
  if (value.tensor.rank() != rank)
    fail(reference, "expected " + std::to_string(rank) + " axes, found shape " +
                        to_string(value.tensor.shape()));
}

void apply(const Access& access, Value& value, const Reference& reference) {
  switch (access.kind) {
    case Access::Kind::index:
      if (value.singular) fail(reference, "singular vectors cannot be indexed");
      if (value.tensor.rank() == 0 || access.index >= value.tensor.shape()[0])
        fail(reference, "no element [" + std::to_string(access.index) + "] in shape " +
                            to_string(value.tensor.shape()));
      value.tensor = value.tensor.at(access.index);
      break;
    case Access::Kind::transpose:
      require_rank(value, 2, reference);
      value.tensor = transpose(value.tensor);
      if (value.singular) value.singular->axis = 1 - value.singular->axis;
      break;
    case Access::Kind::joined:
      require_rank(value, 3, reference);
      value.tensor = join_heads(value.tensor);
      break;
    case Access::Kind::sum:
      value = {row_sums(value.tensor, reference.text), {}};
      break;
    case Access::Kind::shape:
      value = {shape_tensor(value.tensor.shape()), {}};
      break;
  }
}

template <class Map>
const typename Map::mapped_type& find_by_name(const Map& map, const std::string& name,
                                              const Reference& reference) {
  const auto found = map.find(name);
  if (found != map.end()) return found->second;
  std::vector<std::string> known;
  std::string list;
  for (const auto& entry : map) {
    known.push_back(entry.first);
    list += (list.empty() ? "" : ", ") + entry.first;
  }
  fail(reference, "'" + printable(name) + "' is not one of " + list +
                      did_you_mean(name, known, NameKind::output));
}

Value resolve(const Reference& reference, const JobValues& results) {
  Value value =
      find_by_name(find_by_name(results, reference.result, reference), reference.value, reference);
  for (const Access& access : reference.accesses) apply(access, value, reference);
  return value;
}

}  // namespace

Tensor row_sums(const Tensor& tensor, const std::string& name) {
  const DType dtype = tensor.dtype();
  if (tensor.rank() == 0 || (dtype != DType::f64 && dtype != DType::f32))
    fail_data(name + ": expected an array of float64 or float32, found " +
              std::string(name_of(dtype)) + " of shape " + to_string(tensor.shape()));
  Shape rows = tensor.shape();
  const std::size_t n = rows.back();
  rows.pop_back();
  Tensor result(dtype, rows);
  const auto add = [&]<class T>(Type<T>) {
    const auto from = tensor.data<T>();
    const auto to = result.mutable_data<T>();
    for (std::size_t i = 0; i < from.size(); ++i) to[i / n] += from[i];
  };
  if (dtype == DType::f64)
    add(Type<double>{});
  else
    add(Type<float>{});
  return result;
}

std::vector<Value> resolve(const std::vector<Reference>& references, const JobValues& results) {
  std::vector<Value> values;
  for (const Reference& reference : references) values.push_back(resolve(reference, results));
  return values;
}

}  // namespace attn
