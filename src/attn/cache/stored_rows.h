// Queries, keys and values that the kernels read row by row, where they are: in 16 bits, large ones
// with heads behind keys, and those that are stored as codes or with scales, as in quantised
// caches:
//
//   number = (stored - zero_point) * scale * global_scale, in the type of the computation
//
// A scale is one number, or has these axes of the tensor, each complete or of length 1:
//   (G)              a scale for each head
//   (B, G)           for each batch item and head; of a pool, (P, G) for each page and head
//   all but the last for each token and head
//   all              for each block of columns; the number of blocks divides the width
// Heads are an axis of their own even if the tensor has packed heads. In a scale of queries, the
// axis of heads may have fewer elements, each for a group of heads.
// A zero point is one number or has the shape of the scale; a global scale is one number.
// Scales of uint8, or of other integers with nvfp4 and mxfp4, are codes: e4m3 with nvfp4, otherwise
// e8m0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "attn/base/error.h"
#include "attn/problem/attention_arguments.h"
#include "attn/problem/input_table.h"
#include "attn/tensor/gathered_rows.h"

namespace attn {

/// Adds a problem with an input: "NAME: expected EXPECTED, found FOUND".
void report(ProblemList& problems, Input input, std::string expected, std::string found);

/// The inputs that tell how a tensor is stored.
struct Storage {
  Input of, scale;
  std::optional<Input> zero_point, global_scale;
  StoredType Options::*type;
  std::string_view type_key;
};
inline constexpr std::array kStorage = {
    Storage{Input::Q, Input::q_scale, Input::q_zero_point, Input::q_global_scale, &Options::q_type,
            "q_type"},
    Storage{Input::K, Input::k_scale, Input::k_zero_point, Input::k_global_scale, &Options::k_type,
            "k_type"},
    Storage{Input::V, Input::v_scale, Input::v_zero_point, Input::v_global_scale, &Options::v_type,
            "v_type"},
};
/// That of K_pe and of its pages.
inline constexpr Storage kRotaryStorage{Input::K_pe,  Input::k_pe_scale,   std::nullopt,
                                        std::nullopt, &Options::k_pe_type, "k_pe_type"};
constexpr const Storage& storage_of(Input input) {
  return kStorage[input == Input::Q ? 0 : input == Input::K ? 1 : 2];
}

/// The storage that the input describes as a scale or a zero point; nullptr: none.
const Storage* storage_described_by(Input input);

/// The elements of a tensor: numbers, or codes in a tensor of uint8 with the axes of the numbers.
struct Stored {
  Tensor data;
  Code code = Code::none;
};

/// Reports elements that are not those of the StoredType.
Stored stored_elements(Input input, const Tensor& tensor, const Storage& storage,
                       const Options& options, ProblemList& problems);

/// A tensor of rows: number d of head g in slot s of page p is element
/// first + p * page + s * slot + g * head + d of `data`, or a code there.
struct Pool {
  Tensor data;
  Code code = Code::none;
  std::string axes;  ///< those of numbers, a letter each: P pages, s slots, G heads, D columns
  std::size_t pages = 1, slots = 1, heads = 1, width = 0;
  std::int64_t first = 0, page = 0, slot = 0, head = 0;
  enum class Of { pages, keys, queries } of = Of::pages;  ///< neighbouring queries share scales
};

/// The keys and the values of a tensor with these axes. Other letters than those of Pool: h heads
/// of keys and values in turn, 2 keys and values, 1 an axis of length 1; without 2 and h, both
/// pools are the same.
std::pair<Pool, Pool> pools_of(const Stored& stored, const Shape& shape, std::string_view axes);

/// Reports scales, zero points and global scales that do not fit.
void check_scales(const Pool& pool, const Storage& storage, const AttentionArguments& given,
                  ProblemList& problems);

/// A table of keys or values with the scales of their pool.
class PoolRows {
 public:
  /// All rows are zeros. Reports scales that do not fit. `like`: a table of as many items and keys
  /// for which set() is called first, with the same arguments.
  PoolRows(const Pool& pool, const Storage& storage, const AttentionArguments& given,
           std::size_t items, std::size_t keys, ProblemList& problems,
           const PoolRows* like = nullptr);

  /// Rows [row, row + count) of the items * keys rows are those of slots [slot, slot + count).
  void set(std::size_t row, std::size_t page, std::size_t slot, std::size_t count);

  RowTable table() && { return std::move(table_); }

 private:
  void add_factors(const Storage& storage, const AttentionArguments& given, ProblemList& problems);

  const Pool& pool_;
  std::shared_ptr<RowTable::Starts> rows_;
  RowTable table_;
  bool shares_rows_;  ///< with another table, which sets them
  std::int64_t factors_of_page_ = 0, factors_of_slot_ = 0;
};

/// The memory of PoolRows with this number of rows; saturates.
std::size_t bytes_of_rows(const Tensor& stored, std::size_t rows, const Storage& storage,
                          const TensorMap& tensors);

/// Whether with_stored_numbers() changes Q, K or V.
bool has_stored(const AttentionArguments& given);

/// The memory of with_stored_numbers(); saturates.
std::size_t bytes_of_stored(const AttentionArguments& given);

/// The tensors with tables of rows of Q, K and V, which are decoded when they are read, instead of
/// what is stored, and of K and V that are not copied; with Options::value_width, V if it is not
/// given. Errors: data, for scales that do not fit.
TensorMap with_stored_numbers(const AttentionArguments& given);

}  // namespace attn
