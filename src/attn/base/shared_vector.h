// A vector that its copies share until one of them changes it.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace attn {

template <class T>
class SharedVector {
 public:
  SharedVector() = default;
  SharedVector(std::vector<T> elements)
      : elements_(std::make_shared<std::vector<T>>(std::move(elements))) {}
  SharedVector(std::initializer_list<T> elements) : SharedVector(std::vector<T>(elements)) {}

  const std::vector<T>& vector() const {
    static const std::vector<T> none;
    return elements_ ? *elements_ : none;
  }
  operator const std::vector<T>&() const { return vector(); }
  std::size_t size() const { return vector().size(); }
  bool empty() const { return vector().empty(); }
  const T& operator[](std::size_t i) const { return vector()[i]; }
  const T& front() const { return vector().front(); }
  const T* data() const { return vector().data(); }
  auto begin() const { return vector().begin(); }
  auto end() const { return vector().end(); }

  /// To be changed: copied first if it is shared.
  std::vector<T>& own() {
    if (!elements_ || elements_.use_count() > 1)
      elements_ = std::make_shared<std::vector<T>>(vector());
    return *elements_;
  }

 private:
  std::shared_ptr<std::vector<T>> elements_;
};

}  // namespace attn
