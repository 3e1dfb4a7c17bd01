// The lengths of a tensor's axes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <string>
#include <vector>

namespace attn {

/// Like std::vector<std::size_t>, with at most kMaxAxes axes, as in NumPy 2. Up to kFew axes are
/// stored inline: a small job makes hundreds of shapes, and allocating them took longer than its
/// computation. Errors: data, if an axis is added to a shape of kMaxAxes.
class Shape {
 public:
  static constexpr std::size_t kMaxAxes = 64;

  using value_type = std::size_t;
  using iterator = std::size_t*;
  using const_iterator = const std::size_t*;

  Shape() = default;
  Shape(const Shape& other) : few_(other.few_), size_(other.size_) {
    if (size_ > kFew) many_ = other.many_;
  }
  Shape(Shape&&) = default;
  Shape& operator=(const Shape&) = default;
  Shape& operator=(Shape&&) = default;
  ~Shape() = default;
  Shape(std::initializer_list<std::size_t> axes) : Shape(axes.begin(), axes.end()) {}
  template <class Iterator>
  Shape(Iterator first, Iterator last) {
    resize(static_cast<std::size_t>(std::distance(first, last)));
    std::copy(first, last, begin());
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::size_t* begin() { return size_ <= kFew ? few_.data() : many_.data(); }
  const std::size_t* begin() const { return size_ <= kFew ? few_.data() : many_.data(); }
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

  void insert(const_iterator place, std::size_t length) {
    const auto axis = place - begin();
    push_back(length);
    std::rotate(begin() + axis, end() - 1, end());
  }

  void erase(const_iterator place) {
    std::copy(place + 1, static_cast<const Shape*>(this)->end(), begin() + (place - begin()));
    pop_back();
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  static constexpr std::size_t kFew = 6;

  [[noreturn]] static void refuse_axes(std::size_t count);

  /// New axes have the length 0.
  void resize(std::size_t size) {
    if (size > kMaxAxes) refuse_axes(size);
    if (size > kFew) {
      if (size_ <= kFew) many_.assign(begin(), end());
      many_.resize(size);
    } else if (size_ > kFew) {
      std::copy_n(many_.begin(), size, few_.begin());
      many_.clear();
    }
    size_ = size;
  }

  std::array<std::size_t, kFew> few_{};
  std::vector<std::size_t> many_;  ///< all axes, if more than kFew
  std::size_t size_ = 0;
};

/// "(4, 3)", "(4,)", "()", as a Python tuple.
std::string to_string(const Shape& shape);

/// The number of elements. Errors: data, if it exceeds 2^63 - 1.
std::size_t element_count(const Shape& shape);

}  // namespace attn
