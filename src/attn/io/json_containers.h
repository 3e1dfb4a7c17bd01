// Arrays and objects of a JSON document while they are being read; used by both readers.
#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "attn/io/json.h"
#include "attn/io/read_budget.h"

namespace attn {

/// Levels of nesting that are read: an array of Shape::kMaxAxes axes and the objects around it.
inline constexpr std::size_t kDeepestJson = Shape::kMaxAxes + 8;

/// Collects the elements of an array in the most compact form that holds them.
class JsonRow {
 public:
  explicit JsonRow(MemoryCharge& charge) : charge_(&charge) {}
  void add(Json&& element);
  void add(std::int64_t integer);
  Json take() { return std::move(row_); }
  bool empty() const { return empty_; }

 private:
  template <class T>
  void append(std::vector<T>& elements, T&& element) {
    charge_->grow(elements);
    elements.push_back(std::move(element));
  }
  template <class T>
  JsonArray spread(const std::vector<T>& numbers);
  void add_number(double number);

  MemoryCharge* charge_;
  Json row_{JsonArray{}};
  std::size_t words_ = 0;  ///< strings at the start that are "NaN" and the like
  bool empty_ = true;
};

/// The keys of an object.
class JsonKeys {
 public:
  /// Returns false if one of `members`, which were read so far, has the key.
  bool add(const JsonObject& members, const std::string& key, MemoryCharge& charge);

 private:
  bool insert(const std::string& key, MemoryCharge& charge);

  std::set<std::string>
      keys_;  ///< only of large objects; ordered, as hashes can be made to collide
};

}  // namespace attn
