// What mask rules (problem/mask_rule.h) and bias rules (problem/bias_rule.h) share: names, tables,
// and expressions as lists of parts.
//
// The names are
//
//   q, k     the positions of the query and of the key that causality and windows compare: q
//            includes the offset, and with documents both count from the start of the document
//   i, j     the indices of the query and of the key
//   b, h, g  the indices of the batch item, the query head and the key/value head
//   L, S     the numbers of queries and of keys, without appended keys
//
// A table has one or two axes, and may have one of batch items in front of them: t[x] is t[b, x]
// then.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/base/expression.h"
#include "attn/problem/inputs.h"
#include "attn/tensor/tensor.h"

namespace attn::rule {

enum class Name { q, k, i, j, b, h, g, L, S };
inline constexpr std::array<std::pair<std::string_view, Name>, 9> kNames = {{{"q", Name::q},
                                                                             {"k", Name::k},
                                                                             {"i", Name::i},
                                                                             {"j", Name::j},
                                                                             {"b", Name::b},
                                                                             {"h", Name::h},
                                                                             {"g", Name::g},
                                                                             {"L", Name::L},
                                                                             {"S", Name::S}}};

/// A table as (items, rows, columns).
struct Table {
  std::string name;
  Tensor elements;
  std::size_t items = 1, rows = 1, columns = 0;
  bool has_rows = false;

  /// The rows of a batch item.
  template <class T>
  std::span<const T> of_item(std::size_t item) const {
    const std::size_t size = rows * columns;
    return elements.data<T>().subspan((items == 1 ? 0 : item) * size, size);
  }
};

/// A part of the expression. Its operands come before it in the list of parts.
struct Part {
  Expression::Kind kind;
  std::size_t position;  ///< in the text
  std::int64_t number = 0;
  double real = 0;  ///< the number, in languages of real numbers
  Name name = Name::q;
  std::size_t of = 0;  ///< index in Language::functions or in the tables
  std::vector<std::size_t> operands = {};
  std::vector<Expression::Relation> relations = {};
  bool is_of_key = false;  ///< differs between keys
};

/// A kind of rules.
struct RuleKind {
  std::string_view key;  ///< of jobs
  DType numbers;         ///< of the elements of tables: i64 or f64
  Language language;     ///< without names and tables
};

/// The names, and the tables among `tensors`.
Language language_of(const RuleKind& kind, const TensorMap& tensors);

/// An expression and its tables.
struct Parts {
  std::vector<Part> parts;  ///< the whole expression is the last one
  std::vector<Table> tables;
  bool of_items = false, of_heads = false, of_queries = false, of_keys = false;
  std::int64_t L = 0, S = 0;
  std::size_t heads_of_group = 1;
};

/// One expression, or the conjunction of several. `in` must have its lengths. Errors: data, with
/// the position in the text.
Parts parts_of(const RuleKind& kind, const std::vector<std::string>& texts,
               const TensorMap& tensors, const Inputs& in);

/// What differs between the pairs of a query and a key.
struct Pair {
  std::size_t item = 0;
  std::int64_t head = 0, query = 0, position = 0, key = 0, key_position = 0;
};
std::int64_t number_of(Name name, const Pair& pair, const Parts& rule);

/// The truth of a comparison (a < b < c is a < b and b < c), "and" or "or". of(n) computes operand
/// n; those after the one that decides are not computed.
template <class Of>
bool truth_of(const Part& part, Of of) {
  if (part.kind == Expression::Kind::comparison) {
    auto a = of(0);
    for (std::size_t n = 0; n < part.relations.size(); ++n) {
      const auto b = of(n + 1);
      if (!holds(part.relations[n], a, b)) return false;
      a = b;
    }
    return true;
  }
  const bool is_or = part.kind == Expression::Kind::logical_or;
  for (std::size_t n = 0; n < part.operands.size(); ++n)
    if ((of(n) != 0) == is_or) return is_or;
  return !is_or;
}

/// Error: data, with the position of the part in the text and the values of b, h, q and k.
[[noreturn]] void fail_at_pair(const RuleKind& kind, const Part& part, const std::string& message,
                               const Pair& pair);

}  // namespace attn::rule
