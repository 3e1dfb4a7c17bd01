// The text of a mask rule: the mask of many keys at once is that of each key alone.
#include "attn/problem/mask_rule.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "attn/problem/mask.h"
#include "support/fuzz.h"

using namespace attn;

namespace {

constexpr std::size_t kQueries = 3, kKeys = 300;  // more keys than are computed one by one

Tensor counted(Shape shape, std::int64_t modulus) {
  Tensor table(DType::i64, std::move(shape));
  std::int64_t next = 0;
  for (std::int64_t& x : table.mutable_data<std::int64_t>()) x = next++ % modulus - 1;
  return table;
}

TensorMap tensors() {
  TensorMap all;
  all.set("Q", Tensor(DType::f32, {2, 2, kQueries, 1}));
  all.set("K", Tensor(DType::f32, {2, 2, kKeys, 1}));
  all.set("mask_tables.t", counted({kKeys}, 7));
  all.set("mask_tables.u", counted({3, 5}, 3));
  all.set("mask_tables.v", counted({2, kKeys}, 11));
  return all;
}

/// The mask of a query from keys on their own; nullopt if one of them has an error.
std::optional<std::vector<bool>> by_key(RuleRows& rows, std::size_t query) {
  std::vector<bool> mask;
  bool visible[kKeys];
  for (std::size_t key = 0; key < kKeys; ++key) {
    if (!fuzz::accepted([&] { rows.show(query, key, key + 1, visible); })) return std::nullopt;
    mask.push_back(visible[key]);
  }
  return mask;
}

void require_same(const Inputs& in, std::size_t entry, std::size_t head) {
  RuleRows rows(in, entry, head);
  for (std::size_t query = 0; query < kQueries; ++query) {
    const auto expected = by_key(rows, query);
    bool visible[kKeys];
    const bool shown = fuzz::accepted([&] { rows.show(query, 0, kKeys, visible); });
    fuzz::require(shown == expected.has_value(), "spans have the errors of their keys");
    if (!shown) continue;
    fuzz::require(std::equal(expected->begin(), expected->end(), visible),
                  "spans show the same keys");
    kernel::KeyRange range{0, kKeys, 0, false};
    if (!rows.narrow(query, range)) continue;
    for (std::size_t key = 0; key < kKeys; ++key)
      fuzz::require((*expected)[key] == (static_cast<std::int64_t>(key) >= range.begin &&
                                         static_cast<std::int64_t>(key) < range.end),
                    "the range is that of the visible keys");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TensorMap kTensors = tensors();
  static const Inputs kInputs = make_inputs({kTensors});
  Inputs in = kInputs;
  in.token_positions = std::vector(in.B, in.token_positions.front());
  const std::string text(fuzz::text_of(data, size));
  if (!fuzz::accepted([&] {
        in.mask_rule =
            std::make_shared<const MaskRule>(std::vector<std::string>{text}, kTensors, in);
      }))
    return 0;
  require_same(in, 0, 0);
  require_same(in, 1, 1);
  return 0;
}
