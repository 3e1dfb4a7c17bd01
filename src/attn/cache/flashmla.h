// The 8-bit caches of FlashMLA, pages of bytes with codes, scales and rotary columns:
//
//   StoredType::flashmla_v32     656 bytes a token: 512 e4m3 codes, 4 float32 scales for 128
//   columns
//                                each, 64 bfloat16 columns
//   StoredType::flashmla_model1  576 bytes a token: 448 e4m3 codes, 64 bfloat16 columns; after all
//                                tokens of the page, 8 bytes a token: 7 e8m0 scales for 64 columns
//                                each, and one without meaning. Pages may be padded to a multiple
//                                of 576 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "attn/cache/stored_rows.h"
#include "attn/problem/options.h"
#include "attn/tensor/gathered_rows.h"

namespace attn {

bool is_flashmla(StoredType type);

/// The columns of the values of these caches.
inline constexpr std::int64_t kFlashMlaValues = 512;

/// The pages, slots and width of a cache (P, page size, bytes), (P, page size, 1, bytes) or, for
/// flashmla_model1, (P, bytes of a page). nullopt if a problem was reported.
std::optional<Pool> flashmla_pool(Input input, const Stored& stored, StoredType type,
                                  ProblemList& problems);

/// A table of keys, as PoolRows.
class FlashMlaRows {
 public:
  FlashMlaRows(const Pool& pool, StoredType type, std::size_t items, std::size_t keys);

  void set(std::size_t row, std::size_t page, std::size_t slot, std::size_t count);
  RowTable table() &&;

 private:
  struct Bytes {
    std::size_t token, scales, rotary;  ///< where these start in the pool
  };
  Bytes bytes_of(std::size_t page, std::size_t slot) const;

  const Pool& pool_;
  StoredType type_;
  std::shared_ptr<RowTable::Starts> token_starts_, rotary_starts_;
  RowTable codes_, rotary_;
};

/// The memory of FlashMlaRows with this number of rows; saturates.
std::size_t bytes_of_flashmla_rows(std::size_t rows);

}  // namespace attn
