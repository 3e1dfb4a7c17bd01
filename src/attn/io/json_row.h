// An array of a document while it is being read, in the most compact form that holds it.
#pragma once

#include <cstddef>

#include "attn/io/json.h"

namespace attn {

class JsonRow {
 public:
  void add(Json&& element);
  void add(std::int64_t integer);
  Json take() { return std::move(row_); }
  bool empty() const { return empty_; }

 private:
  void add_number(double number);

  Json row_{JsonArray{}};
  std::size_t words_ = 0;  ///< strings it begins with that are "NaN" and the like
  bool empty_ = true;
};

}  // namespace attn
