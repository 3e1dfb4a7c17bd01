#include "attn/cache/flashmla.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "attn/base/error.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

/// Sizes in bytes, unless something else is stated.
struct ByteLayout {
  std::size_t codes;            ///< also columns
  std::size_t scales, columns;  ///< their number, and the columns of each
  std::size_t scale;
  std::size_t token;    ///< of all that is beside each other for a token
  std::size_t of_page;  ///< of the scales behind the tokens of a page, for each token
  std::size_t rotary;   ///< from the start of a token
};
constexpr std::size_t kRotaryColumns = 64;
constexpr ByteLayout kV32{512, 4, 128, 4, 656, 0, 528}, kModel1{448, 7, 64, 1, 576, 8, 448};

const ByteLayout& layout_of(StoredType type) {
  return type == StoredType::flashmla_v32 ? kV32 : kModel1;
}

/// The bfloat16 numbers in the bytes.
Tensor as_bf16(const Tensor& bytes) {
  auto owner = std::make_shared<Tensor>(bytes);
  if (reinterpret_cast<std::uintptr_t>(owner->raw()) % alignof(BFloat16) != 0) {
    Tensor copy(DType::u8, bytes.shape());
    std::memcpy(copy.mutable_raw(), bytes.raw(), bytes.bytes());
    *owner = std::move(copy);
  }
  const std::byte* const first = owner->raw();
  return Tensor(DType::bf16, {bytes.size() / 2},
                std::shared_ptr<const std::byte>(std::move(owner), first));
}

}  // namespace

bool is_flashmla(StoredType type) {
  return type == StoredType::flashmla_v32 || type == StoredType::flashmla_model1;
}

std::optional<Pool> flashmla_pool(Input input, const Stored& stored, StoredType type,
                                  ProblemList& problems) {
  const ByteLayout& layout = layout_of(type);
  const Shape& shape = stored.data.shape();
  const std::size_t token = layout.token + layout.of_page, rank = shape.size();
  const bool has_tokens = (rank == 3 || (rank == 4 && shape[2] == 1)) && shape.back() == token;
  const bool has_pages = rank == 2 && layout.of_page > 0;
  const std::size_t slots = has_tokens ? shape[1] : has_pages ? shape[1] / token : 0;
  const std::size_t whole = slots * token,
                    padded = (whole + layout.token - 1) / layout.token * layout.token;
  if (slots == 0 || (has_pages && shape[1] != whole && shape[1] != padded)) {
    const std::string bytes = std::to_string(token);
    report(problems, input,
           "(P, page size, " + bytes + ")" + (layout.of_page > 0 ? ", " : " or ") +
               "(P, page size, 1, " + bytes + ")" +
               (layout.of_page > 0 ? " or (P, bytes of a page)" : ""),
           to_string(shape));
    return std::nullopt;
  }
  Pool pool;
  pool.data = stored.data, pool.code = stored.code;
  pool.pages = shape[0], pool.slots = slots, pool.width = layout.codes + kRotaryColumns;
  pool.page = static_cast<std::int64_t>(has_pages ? shape[1] : whole);
  return pool;
}

FlashMlaRows::FlashMlaRows(const Pool& pool, StoredType type, std::size_t items, std::size_t keys)
    : pool_(pool), type_(type) {
  const ByteLayout& layout = layout_of(type);
  codes_.pool = pool.data, rotary_.pool = as_bf16(pool.data);
  for (const auto& [table, starts] :
       {std::pair(&codes_, &token_starts_), std::pair(&rotary_, &rotary_starts_)}) {
    *starts = std::make_shared<RowTable::Starts>(items * keys, RowTable::kZeros);
    table->items = items, table->keys = keys, table->heads = 1, table->rows = *starts;
  }
  codes_.width = layout.codes, codes_.code = Code::e4m3;
  rotary_.width = kRotaryColumns, rotary_.own_dtype = DType::bf16;
  RowFactors& factors = codes_.factors.emplace();
  factors.columns = layout.columns;
  factors.factors.assign(items * keys * layout.scales, 1.0);
  for (std::size_t row = 0; row < items * keys; ++row)
    factors.starts.push_back(static_cast<std::int64_t>(row * layout.scales));
}

FlashMlaRows::Bytes FlashMlaRows::bytes_of(std::size_t page, std::size_t slot) const {
  const ByteLayout& layout = layout_of(type_);
  const std::size_t first = page * static_cast<std::size_t>(pool_.page);
  const std::size_t token = first + slot * layout.token;
  const std::size_t scales = layout.of_page > 0
                                 ? first + pool_.slots * layout.token + slot * layout.of_page
                                 : token + layout.codes;
  return {token, scales, token + layout.rotary};
}

void FlashMlaRows::set(std::size_t row, std::size_t page, std::size_t slot, std::size_t count) {
  const ByteLayout& layout = layout_of(type_);
  const std::byte* const pool = pool_.data.raw();
  for (std::size_t i = 0; i < count; ++i, ++row) {
    const Bytes at = bytes_of(page, slot + i);
    (*token_starts_)[row] = static_cast<std::int64_t>(at.token);
    (*rotary_starts_)[row] = static_cast<std::int64_t>(at.rotary / 2);
    for (std::size_t j = 0; j < layout.scales; ++j) {
      double& factor = codes_.factors->factors[row * layout.scales + j];
      const std::byte* const from = pool + at.scales + j * layout.scale;
      if (layout.scale == 1) {
        factor = static_cast<double>(numbers_of(Code::e8m0)[std::to_integer<std::size_t>(*from)]);
      } else {
        float number;
        std::memcpy(&number, from, sizeof number);
        factor = static_cast<double>(number);
      }
    }
  }
}

RowTable FlashMlaRows::table() && { return joined_columns(std::move(codes_), std::move(rotary_)); }

std::size_t bytes_of_flashmla_rows(std::size_t rows) {
  constexpr std::size_t kNumbers = 3;  // where codes, rotary columns and factors start
  return saturating_product({rows, sizeof(double), kNumbers + kModel1.scales});
}

}  // namespace attn
