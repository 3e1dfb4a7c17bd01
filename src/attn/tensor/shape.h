// The lengths of a tensor's axes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string>

namespace attn {

/// Like std::vector<std::size_t>, with at most kMaxAxes axes, as in NumPy 2. Up to kInline axes are
/// stored inline: a small job makes hundreds of shapes, and allocating them took longer than its
/// computation. Errors: data, if an axis is added to a shape of kMaxAxes.
class Shape {
 public:
  static constexpr std::size_t kMaxAxes = 64;

  using value_type = std::size_t;
  using iterator = std::size_t*;
  using const_iterator = const std::size_t*;

  Shape() = default;
  Shape(const Shape& other)
      : inline_(other.inline_), allocated_(other.copy_of_allocated()), size_(other.size_) {}
  Shape(Shape&&) = default;
  Shape& operator=(const Shape& other) {
    inline_ = other.inline_;
    allocated_ = other.copy_of_allocated();
    size_ = other.size_;
    return *this;
  }
  Shape& operator=(Shape&&) = default;
  ~Shape() = default;
  Shape(std::initializer_list<std::size_t> axes) : Shape(axes.begin(), axes.end()) {}
  template <class Iterator>
  Shape(Iterator first, Iterator last) {
    resize(static_cast<std::size_t>(std::distance(first, last)));
    // Not std::copy, which calls memmove().
    for (std::size_t* axis = begin(); first != last; ++first) *axis++ = *first;
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::size_t* begin() { return size_ <= kInline ? inline_.data() : allocated_->data(); }
  const std::size_t* begin() const {
    return size_ <= kInline ? inline_.data() : allocated_->data();
  }
  std::size_t* end() { return begin() + size_; }
  const std::size_t* end() const { return begin() + size_; }
  std::size_t& operator[](std::size_t axis) { return begin()[axis]; }
  std::size_t operator[](std::size_t axis) const { return begin()[axis]; }
  std::size_t& front() { return *begin(); }
  std::size_t front() const { return *begin(); }
  std::size_t& back() { return end()[-1]; }
  std::size_t back() const { return end()[-1]; }

  void push_back(std::size_t length) {
    resize(size_ + 1);
    back() = length;
  }
  void pop_back() { resize(size_ - 1); }
  void clear() { resize(0); }

  void insert(const_iterator position, std::size_t length) {
    const auto axis = position - begin();
    push_back(length);
    std::rotate(begin() + axis, end() - 1, end());
  }

  void erase(const_iterator position) {
    std::copy(position + 1, static_cast<const Shape*>(this)->end(), begin() + (position - begin()));
    pop_back();
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.size_ != b.size_) return false;
    for (std::size_t axis = 0; axis < a.size_; ++axis)
      if (a[axis] != b[axis]) return false;
    return true;
  }

 private:
  static constexpr std::size_t kInline = 6;

  using AllAxes = std::array<std::size_t, kMaxAxes>;

  std::unique_ptr<AllAxes> copy_of_allocated() const {
    return size_ <= kInline ? nullptr : std::make_unique<AllAxes>(*allocated_);
  }

  /// The caller sets the lengths of new axes.
  void resize(std::size_t size) {
    if (size > kInline || size_ > kInline) move_axes(size);
    size_ = size;
  }
  /// To where `size` axes are stored. Errors: data, if these are too many.
  void move_axes(std::size_t size);

  std::array<std::size_t, kInline> inline_{};
  std::unique_ptr<AllAxes> allocated_;  ///< if more than kInline
  std::size_t size_ = 0;
};

/// "(4, 3)", "(4,)", "()", as a Python tuple.
std::string to_string(const Shape& shape);

/// The number of elements. Errors: data, if it exceeds 2^63 - 1.
std::size_t element_count(const Shape& shape);

/// Sum and product of byte counts, saturating at the largest size.
std::size_t saturating_sum(std::size_t a, std::size_t b);
std::size_t saturating_product(const Shape& factors);

/// The index {1, 0, 2} of the element at the row-major position `flat`, as numpy.unravel_index.
Shape unravel_index(std::size_t flat, const Shape& shape);

/// The same as text: "[1, 0, 2]"; "[]" for the element of a 0-d tensor.
std::string index_text(std::size_t flat, const Shape& shape);

}  // namespace attn
