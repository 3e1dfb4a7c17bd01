#include "attn/tensor/tensor.h"

#include <sys/mman.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>

#include "attn/base/error.h"
#include "attn/base/float_arrays.h"
#include "attn/base/memory_limit.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/tensor/gathered_rows.h"
#include "attn/tensor/transposed.h"
#include "attn/tensor/widened.h"

namespace attn {
namespace {

constexpr std::size_t kAlignment = 64;  // a cache line, and the widest SIMD register

/// Advises the kernel to use huge pages for large blocks, because faults on small pages take longer
/// than most computations.
void ask_for_huge_pages(std::uintptr_t address, std::size_t bytes) {
  constexpr std::uintptr_t kHugePage = std::uintptr_t{2} << 20;
  const std::uintptr_t begin = (address + kHugePage - 1) / kHugePage * kHugePage;
  const std::uintptr_t end = (address + bytes) / kHugePage * kHugePage;
  if (bytes >= kHugePage && begin < end)
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

// From this size on calloc returns untouched zero pages. Below it, elements and reference count
// share one allocation, which is much faster.
constexpr std::size_t kLarge = 65536;

std::byte* aligned(std::byte* block) {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  return block + (kAlignment - address % kAlignment) % kAlignment;
}

std::shared_ptr<const std::byte> allocate_zeroed(std::size_t count, std::size_t size) {
  alignas(kAlignment) static std::byte none;
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes) ||
      bytes > std::numeric_limits<std::size_t>::max() / 4)
    throw std::bad_alloc();
  if (bytes == 0) return {std::shared_ptr<const std::byte>(), &none};
  if (bytes < kLarge) {
    auto block = std::make_shared_for_overwrite<std::byte[]>(bytes + kAlignment);
    std::byte* const data = aligned(block.get());
    std::memset(data, 0, bytes);
    return {std::move(block), data};
  }
  check_allocation(bytes);
  auto* block = static_cast<std::byte*>(std::calloc(bytes + kAlignment, 1));
  if (block == nullptr) throw std::bad_alloc();
  ask_for_huge_pages(reinterpret_cast<std::uintptr_t>(block), bytes);
  return {aligned(block), [block](const std::byte*) { std::free(block); }};
}

// Not inline: there are 169 conversions.
[[noreturn, gnu::cold, gnu::noinline]] void refuse_value(const std::string& value, DType dtype) {
  fail_data(value + " does not fit " + std::string(name_of(dtype)));
}
[[noreturn, gnu::cold, gnu::noinline]] void refuse_number(double value, DType dtype) {
  refuse_value(std::to_string(value), dtype);
}
[[noreturn, gnu::cold, gnu::noinline]] void refuse_number(std::int64_t value, DType dtype) {
  refuse_value(std::to_string(value), dtype);
}
[[noreturn, gnu::cold, gnu::noinline]] void refuse_number(std::uint64_t value, DType dtype) {
  refuse_value(std::to_string(value), dtype);
}

template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<To, bool>) {
    return static_cast<double>(value) != 0;
  } else if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
    if (!std::in_range<To>(
            static_cast<std::conditional_t<std::is_same_v<From, bool>, int, From>>(value)))
      refuse_number(static_cast<std::conditional_t<std::is_same_v<From, std::uint64_t>,
                                                   std::uint64_t, std::int64_t>>(value),
                    dtype_of<To>);
    return static_cast<To>(value);
  } else if constexpr (std::is_integral_v<To>) {
    const double number = static_cast<double>(value);
    const double limit = std::ldexp(1.0, std::numeric_limits<To>::digits);
    const double lowest = std::is_signed_v<To> ? -limit : 0.0;
    const double whole = std::trunc(number);
    if (!(whole >= lowest && whole < limit)) refuse_number(number, dtype_of<To>);
    return static_cast<To>(whole);
  } else if constexpr (std::is_same_v<To, float> || std::is_same_v<To, double>) {
    return static_cast<To>(value);
  } else {
    return To(static_cast<double>(value));
  }
}

/// Whether base/float_arrays.h converts one type to the other.
template <class From, class To>
inline constexpr bool is_narrow_pair = requires(const From* from, To* to) {
  convert_all(from, std::size_t{0}, to);
};

}  // namespace

std::string to_string(const Shape& shape) {
  const auto digits = [](std::size_t length) { return std::to_string(length); };
  return "(" + join(shape, ", ", digits) + (shape.size() == 1 ? ",)" : ")");
}

void Shape::move_axes(std::size_t size) {
  if (size > kMaxAxes)
    fail_data("shape has " + std::to_string(size) + " axes; at most " + std::to_string(kMaxAxes) +
              " are supported");
  if (size > kInline && size_ <= kInline) {
    allocated_ = std::make_unique<AllAxes>();
    std::copy_n(inline_.begin(), size_, allocated_->begin());
  } else if (size <= kInline) {
    std::copy_n(allocated_->begin(), size, inline_.begin());
    allocated_ = nullptr;
  }
}

namespace {

// Not inline: the functions that check shapes are called for each tensor.
[[noreturn, gnu::cold, gnu::noinline]] void refuse_size(const Shape& shape) {
  fail_data("shape " + to_string(shape) + " has more than 2^63 elements");
}
[[noreturn, gnu::cold, gnu::noinline]] void fail_reshape(const Shape& from, const Shape& to) {
  throw Error(ErrorKind::internal, "reshape " + to_string(from) + " to " + to_string(to));
}

}  // namespace

std::size_t element_count(const Shape& shape) {
  // Even if an axis is 0, the product of the others must be representable, because strides use it.
  std::int64_t product = 1;
  bool has_elements = true, is_too_large = false;
  for (const std::size_t extent : shape) {
    if (extent == 0)
      has_elements = false;
    else
      is_too_large |= __builtin_mul_overflow(product, extent, &product);
  }
  if (is_too_large) refuse_size(shape);
  return has_elements ? static_cast<std::size_t>(product) : 0;
}

std::size_t saturating_sum(std::size_t a, std::size_t b) {
  const std::size_t sum = a + b;
  return sum < a ? std::numeric_limits<std::size_t>::max() : sum;
}

std::size_t saturating_product(const Shape& factors) {
  std::size_t result = 1;
  for (const std::size_t factor : factors)
    if (__builtin_mul_overflow(result, factor, &result))
      return std::numeric_limits<std::size_t>::max();
  return result;
}

Shape unravel_index(std::size_t flat, const Shape& shape) {
  Shape index = shape;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = flat % shape[axis];
    flat /= shape[axis];
  }
  return index;
}

std::string index_text(std::size_t flat, const Shape& shape) {
  const auto digits = [](std::size_t i) { return std::to_string(i); };
  return "[" + join(unravel_index(flat, shape), ", ", digits) + "]";
}

Tensor::Tensor(DType dtype, Shape shape)
    : dtype_(dtype),
      storage_(Storage::owned),
      shape_(std::move(shape)),
      size_(element_count(shape_)),
      elements_(allocate_zeroed(size_, size_of(dtype))) {}

Tensor::Tensor(DType dtype, Shape shape, std::shared_ptr<const std::byte> data)
    : dtype_(dtype),
      shape_(std::move(shape)),
      size_(element_count(shape_)),
      elements_(std::move(data)) {}

Tensor::Tensor(DType dtype, Shape shape, std::shared_ptr<const DeferredElements> elements)
    : dtype_(dtype),
      storage_(Storage::deferred),
      shape_(std::move(shape)),
      size_(element_count(shape_)),
      elements_(std::move(elements)) {}

std::byte* Tensor::mutable_raw() {
  if (const Tensor* const kept = narrow()) *this = cast(kept->reshaped(shape_), dtype_);
  if (storage_ != Storage::owned || elements_.use_count() > 1) {
    Tensor copy(dtype_, shape_);
    if (bytes() > 0) std::memcpy(const_cast<std::byte*>(copy.raw()), raw(), bytes());
    *this = std::move(copy);
  }
  return const_cast<std::byte*>(raw());
}

Tensor Tensor::reshaped(Shape shape) const& { return Tensor(*this).reshaped(std::move(shape)); }

Tensor Tensor::reshaped(Shape shape) && {
  if (element_count(shape) != size_) fail_reshape(shape_, shape);
  shape_ = std::move(shape);
  return std::move(*this);
}

/// Shares the elements of `whole` from this byte on.
void Tensor::set_part(const Tensor& whole, std::size_t first_byte) {
  elements_ = std::shared_ptr<const void>(whole.elements_, whole.raw() + first_byte);
  if (storage_ == Storage::deferred) storage_ = Storage::shared;
}

Tensor Tensor::at(std::size_t index) const {
  if (rank() == 0 || index >= shape_[0])
    throw Error(ErrorKind::internal, "index " + std::to_string(index) + " in " + to_string(shape_));
  if (const Tensor* const kept = narrow()) return widened(kept->reshaped(shape_).at(index), dtype_);
  Tensor result = *this;
  result.shape_.erase(result.shape_.begin());
  result.size_ = size_ / shape_[0];
  result.set_part(*this, index * result.bytes());
  return result;
}

Tensor Tensor::range(std::size_t first, std::size_t count) const {
  if (rank() == 0 || first + count > shape_[0])
    throw Error(ErrorKind::internal, "elements " + std::to_string(first) + " to " +
                                         std::to_string(first + count) + " of " +
                                         to_string(shape_));
  if (const Tensor* const kept = narrow())
    return widened(kept->reshaped(shape_).range(first, count), dtype_);
  Tensor result = *this;
  result.shape_[0] = count;
  result.size_ = shape_[0] == 0 ? 0 : size_ / shape_[0] * count;
  result.set_part(*this, shape_[0] == 0 ? 0 : bytes() / shape_[0] * first);
  return result;
}

void Tensor::fail_dtype(DType wanted) const {
  throw Error(ErrorKind::internal, "tensor is " + std::string(name_of(dtype_)) + ", asked for " +
                                       std::string(name_of(wanted)));
}

void Tensor::require_size(std::size_t count) const {
  if (count != size_)
    throw Error(ErrorKind::internal, "shape " + to_string(shape_) + " takes " +
                                         std::to_string(size_) + " elements, got " +
                                         std::to_string(count));
}

Tensor cast(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  if (const Tensor* const kept = tensor.narrow())
    return cast(*kept, dtype).reshaped(tensor.shape());
  if (const GatheredRows* rows = tensor.rows();
      rows && !rows->is_computed() && is_float(tensor.dtype()) && is_float(dtype))
    return gathered_tensor(rows->table(), dtype, rows->by_head()).reshaped(tensor.shape());
  if (const TransposedMatrix* matrix = tensor.transpose();
      matrix && is_float(dtype) && matrix->stored().dtype() == tensor.dtype())
    return matrix->in_type(dtype).reshaped(tensor.shape());
  Tensor result(dtype, tensor.shape());
  cast_to(tensor, dtype, result.mutable_raw());
  return result;
}

void cast_to(const Tensor& tensor, DType dtype, std::byte* to) {
  visit(tensor.dtype(), [&]<class From>(Type<From>) {
    visit(dtype, [&]<class To>(Type<To>) {
      const auto from = tensor.data<From>();
      if constexpr (is_narrow_pair<From, To>)
        convert_all(from.data(), from.size(), reinterpret_cast<To*>(to));
      else
        std::transform(from.begin(), from.end(), reinterpret_cast<To*>(to),
                       [](From value) { return convert<To>(value); });
    });
  });
}

void TensorMap::set(const std::string& name, Tensor tensor) {
  const std::uint8_t hash = hash_of(name);
  if (const Entry* const old = entry_of(name, hash)) {
    entries_[static_cast<std::size_t>(old - entries_.data())].second = std::move(tensor);
    return;
  }
  if (entries_.empty()) entries_.reserve(4);  // enough for most jobs; growing is slow
  if (size() < kFew) hashes_[size()] = hash;
  entries_.emplace_back(name, std::move(tensor));
  present_ |= bit_of(hash);
  if (size() <= kFew) return;
  for (std::size_t index = index_.size(); index < size(); ++index)
    index_.emplace(entries_[index].first, index);
}

const TensorMap::Entry* TensorMap::entry_among_many(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

const Tensor& TensorMap::at(std::string_view name) const {
  const Tensor* tensor = find(name);
  if (tensor == nullptr) throw Error(ErrorKind::internal, "no tensor '" + std::string(name) + "'");
  return *tensor;
}

std::vector<std::string> TensorMap::names_below(std::string_view prefix) const {
  std::vector<std::size_t> below;
  const auto is_below = [&](std::string_view name) { return name.starts_with(prefix); };
  if (size() <= kFew)
    for (std::size_t i = 0; i < size(); ++i) below.push_back(i);
  for (auto next = index_.lower_bound(prefix); next != index_.end() && is_below(next->first);
       ++next)
    below.push_back(next->second);
  std::sort(below.begin(), below.end());
  std::vector<std::string> names;
  for (const std::size_t i : below)
    if (is_below(entries_[i].first)) names.push_back(entries_[i].first);
  return names;
}

std::vector<std::string> TensorMap::names_near(std::string_view name) const {
  if (size() <= kMostSearched) return names();
  return names_around(index_.begin(), index_.lower_bound(name), index_.end(),
                      [](const auto& entry) { return entry.first; });
}

std::vector<std::string> TensorMap::names() const { return texts_of(entries_, &Entry::first); }

}  // namespace attn
