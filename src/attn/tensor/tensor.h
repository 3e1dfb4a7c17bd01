// Tensors: a dtype, a shape and the elements in row-major (C) order.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/base/dtype.h"
#include "attn/base/name.h"
#include "attn/tensor/shape.h"

namespace attn {

class GatheredRows;
class Tensor;
class TransposedMatrix;

/// Lazily computed elements. Thread-safe.
class DeferredElements {
 public:
  virtual ~DeferredElements() = default;
  virtual const std::byte* data() const = 0;
  virtual const GatheredRows* rows() const { return nullptr; }           ///< Tensor::rows()
  virtual const Tensor* narrow() const { return nullptr; }               ///< Tensor::narrow()
  virtual const TransposedMatrix* transpose() const { return nullptr; }  ///< Tensor::transpose()
};

/// A value type with copy-on-write storage. The elements are contiguous, row-major and in the
/// machine's byte order. Arithmetic uses xtensor views (tensor/array.h).
class Tensor {
 public:
  Tensor() : Tensor(DType::f64, Shape{0}) {}

  /// Filled with zeros. Throws std::bad_alloc; the caller checks the size against the memory limit.
  Tensor(DType dtype, Shape shape);

  /// Shares elements owned elsewhere, such as the bytes of a file. `data` is aligned for dtype and
  /// keeps its owner alive.
  Tensor(DType dtype, Shape shape, std::shared_ptr<const std::byte> data);

  /// Elements that are made when they are first read (tensor/gathered_rows.h,
  /// tensor/transposed.h, tensor/widened.h).
  Tensor(DType dtype, Shape shape, std::shared_ptr<const DeferredElements> elements);

  /// From values in row-major order, e.g. Tensor::of<double>({2, 3}, {1, 2, 3, 4, 5, 6}).
  template <class T>
  static Tensor of(Shape shape, const std::vector<T>& values) {
    Tensor tensor(dtype_of<T>, std::move(shape));
    tensor.require_size(values.size());
    std::copy(values.begin(), values.end(), tensor.mutable_data<T>().begin());
    return tensor;
  }

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::size_t rank() const { return shape_.size(); }
  std::size_t size() const { return size_; }  ///< elements
  std::size_t bytes() const { return size_ * size_of(dtype_); }
  const std::byte* raw() const {
    return storage_ == Storage::deferred ? deferred()->data()
                                         : static_cast<const std::byte*>(elements_.get());
  }
  std::byte* mutable_raw();

  /// The elements; T must be the C++ type of dtype() (Error(internal) otherwise).
  template <class T>
  std::span<const T> data() const {
    require_dtype(dtype_of<T>);
    return {reinterpret_cast<const T*>(raw()), size_};
  }
  template <class T>
  std::span<T> mutable_data() {
    require_dtype(dtype_of<T>);
    return {reinterpret_cast<T*>(mutable_raw()), size_};
  }

  /// The same elements under another shape of the same size; shares the storage.
  Tensor reshaped(Shape shape) const&;
  Tensor reshaped(Shape shape) &&;

  /// Element `index` of the first axis, without that axis; shares the storage.
  Tensor at(std::size_t index) const;
  /// Elements [first, first + count) of the first axis; shares the storage.
  Tensor range(std::size_t first, std::size_t count) const;

  /// The rows that are gathered when the elements are read; nullptr for all other tensors.
  const GatheredRows* rows() const { return deferred() ? deferred()->rows() : nullptr; }

  /// The same numbers in a narrower type, whose shape may be another; nullptr for all tensors but
  /// those of widened().
  const Tensor* narrow() const { return deferred() ? deferred()->narrow() : nullptr; }
  const Tensor& stored() const& { return narrow() ? *narrow() : *this; }  ///< narrow() or this
  const Tensor& stored() && = delete;

  /// What deferred_transpose() has made, whose shape may be another; nullptr for all other tensors.
  const TransposedMatrix* transpose() const {
    return deferred() ? deferred()->transpose() : nullptr;
  }

 private:
  enum class Storage : unsigned char {
    owned,    ///< allocated here: writable while not shared
    shared,   ///< owned elsewhere
    deferred  ///< DeferredElements
  };

  const DeferredElements* deferred() const {
    return storage_ == Storage::deferred ? static_cast<const DeferredElements*>(elements_.get())
                                         : nullptr;
  }
  void set_part(const Tensor& whole, std::size_t first_byte);
  void require_dtype(DType wanted) const {
    if (wanted != dtype_) fail_dtype(wanted);
  }
  [[noreturn]] void fail_dtype(DType wanted) const;
  void require_size(std::size_t count) const;

  DType dtype_;
  Storage storage_ = Storage::shared;
  Shape shape_;
  std::size_t size_;
  std::shared_ptr<const void> elements_;  ///< std::byte, or DeferredElements
};

/// Converts each element; floats are rounded once to nearest even. Errors: data, for integers that
/// do not fit, and for NaN or infinity as an integer.
Tensor cast(const Tensor& tensor, DType dtype);
inline Tensor cast(Tensor&& tensor, DType dtype) {
  return tensor.dtype() == dtype ? std::move(tensor) : cast(std::as_const(tensor), dtype);
}

/// Writes the elements of cast(tensor, dtype) to memory. Errors: as cast().
void cast_to(const Tensor& tensor, DType dtype, std::byte* to);

/// Named tensors in insertion order.
class TensorMap {
 public:
  using Entry = std::pair<std::string, Tensor>;

  void set(const std::string& name, Tensor tensor);  ///< replaces an existing one
  const Tensor* find(std::string_view name) const { return find(name, hash_of(name)); }
  const Tensor* find(std::string_view name, std::uint8_t hash) const {  ///< nullptr if absent
    const Entry* const entry = entry_of(name, hash);
    return entry == nullptr ? nullptr : &entry->second;
  }
  /// Whether find() can find a name with this hash: most lookups are for absent tensors.
  bool may_contain(std::uint8_t hash) const { return (present_ & bit_of(hash)) != 0; }
  static constexpr std::uint8_t hash_of(std::string_view name) {
    return static_cast<std::uint8_t>(NameHash{}(name));
  }
  const Tensor& at(std::string_view name) const;  ///< Error(internal) if absent
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  std::vector<std::string> names() const;
  std::vector<std::string> names_below(std::string_view prefix) const;  ///< that start with it
  /// Those to search for a suggestion for `name` (base/suggestion.h).
  std::vector<std::string> names_near(std::string_view name) const;
  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  static constexpr std::size_t kFew = 16;  // up to this size a linear search is as fast as an index
  /// nullptr if absent.
  // Inlined: about a hundred calls for each job of a batch.
  [[gnu::always_inline]] const Entry* entry_of(std::string_view name, std::uint8_t hash) const {
    if (!may_contain(hash)) return nullptr;
    if (!index_.empty()) return entry_among_many(name);
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (hashes_[i] == hash && entries_[i].first == name) return &entries_[i];
    return nullptr;
  }
  static constexpr std::uint64_t bit_of(std::uint8_t hash) { return std::uint64_t{1} << hash % 64; }
  const Entry* entry_among_many(std::string_view name) const;

  std::uint64_t present_ = 0;                ///< the bits of all names
  std::array<std::uint8_t, kFew> hashes_{};  ///< of the first names
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t, std::less<>> index_;  ///< name -> index, if more than kFew
};

}  // namespace attn
