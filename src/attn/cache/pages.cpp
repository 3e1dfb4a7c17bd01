#include "attn/cache/pages.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "attn/base/error.h"
#include "attn/cache/flashmla.h"
#include "attn/problem/layout.h"
#include "attn/tensor/gathered_rows.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

enum class PoolKind { keys_or_values, both, latent };
/// The axes of a pool, one letter each: P pages, s slots, G heads, D columns, h heads of keys and
/// values in turn, 2 keys and values, 1 an axis of length 1.
struct PoolForm {
  PoolKind kind;
  PoolLayout layout;
  std::string_view axes;
};
constexpr PoolForm kForms[] = {
    {PoolKind::keys_or_values, PoolLayout::nhd, "PsGD"},
    {PoolKind::keys_or_values, PoolLayout::hnd, "PGsD"},
    {PoolKind::both, PoolLayout::nhd, "P2sGD"},
    {PoolKind::both, PoolLayout::hnd, "P2GsD"},
    {PoolKind::both, PoolLayout::interleaved, "P1hsD"},
    {PoolKind::both, PoolLayout::interleaved, "PshD"},
    {PoolKind::latent, PoolLayout::nhd, "PsD"},
    {PoolKind::latent, PoolLayout::nhd, "Ps1D"},
    {PoolKind::latent, PoolLayout::hnd, "PsD"},
    {PoolKind::latent, PoolLayout::hnd, "P1sD"},
};

PoolKind kind_of(Input input, const Options& options) {
  const bool is_of_one = input == Input::K_pages || input == Input::V_pages;
  return is_of_one                 ? PoolKind::keys_or_values
         : options.value_width > 0 ? PoolKind::latent
                                   : PoolKind::both;
}

std::string text_of(std::string_view axes) {
  std::string text;
  for (const char axis : axes)
    text += (text.empty() ? "(" : ", ") + (axis == 's'   ? "page size"
                                           : axis == 'h' ? "2G"
                                                         : std::string(1, axis));
  return text + ")";
}

bool fits(const Shape& shape, std::string_view axes) {
  if (shape.size() != axes.size()) return false;
  for (std::size_t i = 0; i < axes.size(); ++i)
    if ((axes[i] == '1' && shape[i] != 1) || (axes[i] == '2' && shape[i] != 2) ||
        (axes[i] == 'h' && shape[i] % 2 != 0) || (axes[i] == 's' && shape[i] == 0))
      return false;
  return true;
}

std::optional<std::pair<Pool, Pool>> pools_of(Input input, const AttentionArguments& given,
                                              ProblemList& problems) {
  const Tensor& tensor = at(given.tensors, input);
  const Storage& storage = input == Input::K_pe_pages
                               ? kRotaryStorage
                               : storage_of(input == Input::V_pages ? Input::V : Input::K);
  const Stored stored = stored_elements(input, tensor, storage, given.options, problems);
  if (const StoredType type = given.options.*storage.type; is_flashmla(type)) {
    const std::optional<Pool> pool = flashmla_pool(input, stored, type, problems);
    return pool ? std::optional(std::pair(*pool, *pool)) : std::nullopt;
  }
  std::string expected;
  for (const PoolForm& form : kForms) {
    if (form.kind != kind_of(input, given.options) || form.layout != given.options.page_layout)
      continue;
    if (fits(stored.data.shape(), form.axes))
      return pools_of(stored, stored.data.shape(), form.axes);
    expected += (expected.empty() ? "" : " or ") + text_of(form.axes);
  }
  if (expected.empty())
    problems.add({.subject = "page_layout",
                  .expected = "nhd or hnd for a latent cache",
                  .found = "interleaved"});
  else
    report(problems, input, expected, to_string(tensor.shape()));
  return std::nullopt;
}

/// Checks the widths of the pools of a latent cache; D is that of the queries.
void check_widths(const Pool& keys, const Pool* rotary, std::size_t D, std::size_t columns,
                  ProblemList& problems) {
  const auto check = [&](const Pool& pool, Input input, std::size_t width) {
    if (pool.width != width)
      report(problems, input, "width " + std::to_string(width) + " of the queries",
             std::to_string(pool.width));
  };
  if (rotary == nullptr) return check(keys, Input::KV_pages, std::max(D, columns));
  check(keys, Input::CKV_pages, columns);
  check(*rotary, Input::K_pe_pages, D - columns);
  if (rotary->pages != keys.pages || rotary->slots != keys.slots)
    report(problems, Input::K_pe_pages,
           "the pages and page size of CKV_pages " + to_string(keys.data.shape()),
           to_string(rotary->data.shape()));
}

std::string of_item(std::size_t b) { return " for batch item " + std::to_string(b); }

/// Whole numbers of this rank; nullopt if the tensor is absent or something else.
std::optional<Tensor> numbers(Input input, std::size_t rank, const TensorMap& tensors,
                              ProblemList& problems) {
  const Tensor* tensor = find(tensors, input);
  if (tensor == nullptr) return std::nullopt;
  if (!is_float(tensor->dtype()) && tensor->rank() == rank) {
    try {
      return cast(*tensor, DType::i64);
    } catch (const Error& error) {
      problems.add({.subject = std::string(name_of(input)), .message = error.what()});
      return std::nullopt;
    }
  }
  report(problems, input,
         "whole numbers with " + std::to_string(rank) + (rank == 1 ? " axis" : " axes"),
         std::string(name_of(tensor->dtype())) + " " + to_string(tensor->shape()));
  return std::nullopt;
}

using Numbers = std::span<const std::int64_t>;

using Sequences = PagedCache::Sequences;

/// Reads the two forms of tables. Each function stops at the first problem, so that a wrong table
/// causes one message.
class TableReader {
 public:
  TableReader(const TensorMap& tensors, const Pool& pool, ProblemList& problems)
      : tensors_(tensors), pool_(pool), problems_(problems) {}

  /// block_table and key_lengths, or the lengths of the other table.
  std::optional<Sequences> block_table(const std::optional<Sequences>& other) {
    const auto table = numbers(Input::block_table, 2, tensors_, problems_);
    const auto given = numbers(Input::key_lengths, 1, tensors_, problems_);
    if (!table || (!given && !other)) return std::nullopt;
    const std::size_t count = table->shape()[0], columns = table->shape()[1];
    const std::size_t found = given ? given->size() : other->lengths.size();
    if (found != count) {
      report(problems_, given ? Input::key_lengths : Input::last_page_len,
             "one length for each of the " + std::to_string(count) + " rows of block_table",
             std::to_string(found));
      return std::nullopt;
    }
    Sequences all;
    for (std::size_t b = 0; b < count; ++b) {
      const std::int64_t length =
          given ? given->data<std::int64_t>()[b] : static_cast<std::int64_t>(other->lengths[b]);
      const std::size_t most = columns * pool_.slots;
      if (length < 0 || static_cast<std::size_t>(length) > most) {
        report(problems_, given ? Input::key_lengths : Input::block_table,
               "at most " + std::to_string(most) + " keys in " + std::to_string(columns) +
                   " pages of " + std::to_string(pool_.slots) + of_item(b),
               std::to_string(length));
        return std::nullopt;
      }
      const auto keys = static_cast<std::size_t>(length);
      const std::size_t used = (keys + pool_.slots - 1) / pool_.slots;
      const Numbers row = table->data<std::int64_t>().subspan(b * columns, used);
      if (!take(Input::block_table, row, keys, all)) return std::nullopt;
    }
    return all;
  }

  /// kv_indptr, kv_indices and last_page_len.
  std::optional<Sequences> indptr() {
    const auto begins = numbers(Input::kv_indptr, 1, tensors_, problems_);
    const auto ids = numbers(Input::kv_indices, 1, tensors_, problems_);
    const auto last = numbers(Input::last_page_len, 1, tensors_, problems_);
    if (!begins || !ids || !last) return std::nullopt;
    const Numbers begin = begins->data<std::int64_t>();
    const auto most = static_cast<std::int64_t>(ids->size());
    if (begin.empty() || begin.front() != 0 || !std::is_sorted(begin.begin(), begin.end()) ||
        begin.back() > most) {
      report(problems_, Input::kv_indptr,
             "non-decreasing numbers from 0 to at most " + std::to_string(most) +
                 ", the length of kv_indices",
             begin.empty() ? "none"
             : std::is_sorted(begin.begin(), begin.end())
                 ? std::to_string(begin.front()) + " to " + std::to_string(begin.back())
                 : "decreasing numbers");
      return std::nullopt;
    }
    const std::size_t count = begin.size() - 1;
    if (last->size() != count) {
      report(problems_, Input::last_page_len,
             "one number for each of the " + std::to_string(count) + " sequences of kv_indptr",
             std::to_string(last->size()));
      return std::nullopt;
    }
    Sequences all;
    for (std::size_t b = 0; b < count; ++b) {
      const auto pages = static_cast<std::size_t>(begin[b + 1] - begin[b]);
      const std::int64_t in_last = last->data<std::int64_t>()[b];
      const auto slots = static_cast<std::int64_t>(pool_.slots);
      if (pages > 0 && (in_last < 1 || in_last > slots)) {
        report(problems_, Input::last_page_len,
               "1 to " + std::to_string(slots) + ", the page size," + of_item(b),
               std::to_string(in_last));
        return std::nullopt;
      }
      const std::size_t keys =
          pages == 0 ? 0 : (pages - 1) * pool_.slots + static_cast<std::size_t>(in_last);
      const Numbers its =
          ids->data<std::int64_t>().subspan(static_cast<std::size_t>(begin[b]), pages);
      if (!take(Input::kv_indices, its, keys, all)) return std::nullopt;
    }
    if (!agrees_with_lengths(all)) return std::nullopt;
    return all;
  }

  /// Reports the first page in which the tables differ. The lengths agree.
  void compare(const Sequences& table, const Sequences& list) {
    for (std::size_t b = 0; b < table.pages.size(); ++b)
      for (std::size_t i = 0; i < table.pages[b].size(); ++i)
        if (table.pages[b][i] != list.pages[b][i])
          return report(problems_, Input::block_table,
                        "page " + std::to_string(list.pages[b][i]) + " of kv_indices" + of_item(b) +
                            ", page " + std::to_string(i),
                        std::to_string(table.pages[b][i]));
  }

 private:
  /// Adds a sequence, unless a page is outside of the pool.
  bool take(Input input, Numbers ids, std::size_t keys, Sequences& all) {
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (ids[i] < 0 || ids[i] >= static_cast<std::int64_t>(pool_.pages)) {
        report(problems_, input,
               (pool_.pages == 0
                    ? "no page, because the pool has none"
                    : "0 to " + std::to_string(pool_.pages - 1) + ", a page of the pool,") +
                   of_item(all.lengths.size()) + ", page " + std::to_string(i),
               std::to_string(ids[i]));
        return false;
      }
    all.lengths.push_back(keys);
    all.pages.emplace_back(ids.begin(), ids.end());
    return true;
  }

  bool agrees_with_lengths(const Sequences& all) {
    const auto given = numbers(Input::key_lengths, 1, tensors_, problems_);
    if (!given) return !contains(tensors_, Input::key_lengths);
    const Numbers lengths = given->data<std::int64_t>();
    if (lengths.size() != all.lengths.size()) {
      report(problems_, Input::key_lengths,
             std::to_string(all.lengths.size()) + " lengths, as last_page_len",
             std::to_string(lengths.size()));
      return false;
    }
    for (std::size_t b = 0; b < lengths.size(); ++b)
      if (lengths[b] != static_cast<std::int64_t>(all.lengths[b])) {
        report(problems_, Input::key_lengths,
               std::to_string(all.lengths[b]) + " keys by last_page_len" + of_item(b),
               std::to_string(lengths[b]));
        return false;
      }
    return true;
  }

  const TensorMap& tensors_;
  const Pool& pool_;
  ProblemList& problems_;
};

std::optional<Sequences> sequences_of(const TensorMap& tensors, const Pool& pool,
                                      ProblemList& problems) {
  TableReader reader(tensors, pool, problems);
  if (!contains(tensors, Input::kv_indptr)) return reader.block_table(std::nullopt);
  std::optional<Sequences> list = reader.indptr();
  if (!list || !contains(tensors, Input::block_table)) return list;
  const std::optional<Sequences> table = reader.block_table(list);
  if (table) reader.compare(*table, *list);
  return list;
}

/// Checks that the queries are those of `count` sequences.
void check_queries(const TensorMap& tensors, bool packed, std::size_t count,
                   ProblemList& problems) {
  const Shape& Q = at(tensors, Input::Q).shape();
  const std::string sequences = std::to_string(count) + " sequences of the page table";
  if (const Tensor* cu = find(tensors, Input::cu_seqlens_q)) {
    if (cu->rank() != 1 || cu->size() != count + 1)
      report(problems, Input::cu_seqlens_q,
             std::to_string(count + 1) + " boundaries of the " + sequences, to_string(cu->shape()));
    if (Q.size() == 4 && Q[0] != 1) report(problems, Input::Q, "one batch item", to_string(Q));
  } else if (packed ? count != 1 && Q[0] != count : Q[0] != count) {
    report(problems, Input::Q,
           packed ? "one query for each of the " + sequences + ", or cu_seqlens_q"
                  : "a batch item for each of the " + sequences,
           to_string(Q));
  }
}

/// Reports what depends on the positions of keys, which are unknown.
void refuse_positions(const AttentionArguments& given, ProblemList& problems) {
  const auto refuse = [&](bool is_given, std::string_view key) {
    if (is_given)
      problems.add({.subject = std::string(key),
                    .message = "requires block_table or kv_indptr with index_space cache"});
  };
  for (const Input input :
       {Input::mask, Input::key_mask, Input::bias, Input::dropout_mask, Input::alibi_slopes,
        Input::relative_bias, Input::key_lengths, Input::key_starts, Input::cu_seqlens_q,
        Input::token_ids, Input::prefix_lengths, Input::tree_parents, Input::blocks})
    refuse(contains(given.tensors, input), name_of(input));
  refuse(given.options.causal, "causal");
  refuse(!(given.options.window == Window{}), "window");
  refuse(!given.options.mask_rule.empty(), "mask_rule");
  refuse(given.options.chunk > 0, "chunk");
  refuse(!given.options.bias_rule.empty(), "bias_rule");
  refuse(given.options.alibi, "alibi");
  refuse(given.options.rotary.kind != Rotary::Kind::none, "rotary.kind");
}

Tensor list(const std::vector<std::int64_t>& values) {
  return Tensor::of<std::int64_t>({values.size()}, values);
}

}  // namespace

bool has_pages(const TensorMap& tensors) {
  return contains(tensors, Input::K_pages) || contains(tensors, Input::KV_pages) ||
         contains(tensors, Input::CKV_pages);
}

PagedCache::PagedCache(const AttentionArguments& given) : given_(given) {
  ProblemList problems;
  const Shape& Q = at(given.tensors, Input::Q).shape();
  const bool has_heads = has_head_axis(Q, given.options);
  if (!has_heads) report(problems, Input::Q, "4 axes, or 3 with layout thd", to_string(Q));
  const bool combined = contains(given.tensors, Input::KV_pages);
  if (combined && given.options.v_type == StoredType::as_given)
    given_.options.v_type = given.options.k_type;
  if (combined && given_.options.v_type != given.options.k_type)
    problems.add({.subject = "v_type",
                  .expected = "that of k_type, since KV_pages holds both",
                  .found = "another one"});
  const bool is_split = contains(given.tensors, Input::CKV_pages);
  const auto keys = pools_of(combined   ? Input::KV_pages
                             : is_split ? Input::CKV_pages
                                        : Input::K_pages,
                             given, problems);
  const auto values = combined || is_split ? keys : pools_of(Input::V_pages, given, problems);
  if (is_split)
    if (const auto pools = pools_of(Input::K_pe_pages, given, problems)) rotary_ = pools->first;
  if (keys && !is_flashmla(given.options.k_type))
    check_scales(keys->first, storage_of(Input::K), given_, problems);
  if (values && given.options.value_width == 0)
    check_scales(values->second, storage_of(Input::V), given_, problems);
  if (rotary_) check_scales(*rotary_, kRotaryStorage, given_, problems);
  if (!has_heads || !keys || !values || is_split != rotary_.has_value())
    problems.raise(ErrorKind::data);
  keys_ = keys->first, values_ = values->second;
  if (given.options.value_width > 0)
    check_widths(keys_, rotary_ ? &*rotary_ : nullptr, Q.back(),
                 static_cast<std::size_t>(given.options.value_width), problems);
  if (values_.pages != keys_.pages || values_.slots != keys_.slots || values_.heads != keys_.heads)
    report(problems, Input::V_pages,
           "the pages, page size and heads of K_pages " + to_string(keys_.data.shape()),
           to_string(values_.data.shape()));
  packed_ = contains(given.tensors, Input::cu_seqlens_q) || given.options.layout == Layout::thd;
  if (given.options.index_space == IndexSpace::cache)
    listed_ = ListedSlots::checked(given, keys_.pages * keys_.slots, problems);
  if (!contains(given.tensors, Input::block_table) && !contains(given.tensors, Input::kv_indptr)) {
    refuse_positions(given, problems);
    if (!problems.empty()) problems.raise(ErrorKind::data);
    for (std::size_t item = 0; item < listed_->items(); ++item)
      lengths_.push_back(slots_.emplace_back(listed_->used(item)).size());
    return;
  }
  std::optional<Sequences> sequences = sequences_of(given.tensors, keys_, problems);
  if (sequences) check_queries(given.tensors, packed_, sequences->lengths.size(), problems);
  if (!problems.empty()) problems.raise(ErrorKind::data);
  lengths_ = std::move(sequences->lengths), pages_ = std::move(sequences->pages);
}

std::size_t PagedCache::keys_of_item() const {
  std::size_t sum = 0, most = 0;
  for (const std::size_t length : lengths_)
    sum = saturating_sum(sum, length), most = std::max(most, length);
  return packed_ ? sum : most;
}

std::size_t PagedCache::bytes() const {
  const std::size_t rows = saturating_product({items(), keys_of_item()});
  std::size_t bytes = 0;
  const Pool* const rotary = rotary_ ? &*rotary_ : nullptr;
  for (const auto& [pool, storage] :
       {std::pair(&keys_, &storage_of(Input::K)), std::pair(&values_, &storage_of(Input::V)),
        std::pair(rotary, &kRotaryStorage)}) {
    if (pool == nullptr) continue;
    bytes = saturating_sum(bytes, is_flashmla(given_.options.*(storage->type))
                                      ? bytes_of_flashmla_rows(rows)
                                      : bytes_of_rows(pool->data, rows, *storage, given_.tensors));
    if (!is_float(pool->data.dtype()) && pool->code == Code::none)
      bytes = saturating_sum(
          bytes, saturating_product({rows, pool->heads, pool->width, size_of(pool->data.dtype())}));
  }
  if (listed_) bytes = saturating_sum(bytes, saturating_product({2, listed_->bytes()}));
  return bytes;
}

template <class Rows>
void PagedCache::fill(Rows& rows) const {
  const std::size_t S = keys_of_item();
  for (std::size_t b = 0, at = 0; b < lengths_.size(); at += packed_ ? lengths_[b] : S, ++b)
    if (!slots_.empty())
      for (std::size_t j = 0; j < lengths_[b]; ++j) {
        const auto slot = static_cast<std::size_t>(slots_[b][j]);
        rows.set(at + j, slot / keys_.slots, slot % keys_.slots, 1);
      }
    else
      for (std::size_t i = 0, j = 0; j < lengths_[b]; ++i, j += keys_.slots)
        rows.set(at + j, static_cast<std::size_t>(pages_[b][i]), 0,
                 std::min(keys_.slots, lengths_[b] - j));
}

Tensor PagedCache::key_indices(std::span<const std::int64_t> starts, ProblemList& problems) const {
  // The places of pages in the sequence `known`: slots that follow each other are mostly of one.
  std::size_t known = lengths_.size();
  std::vector<std::size_t> place_of_page;
  const auto find_places = [&](std::size_t sequence) {
    const auto& pages = pages_[sequence];
    place_of_page.assign(keys_.pages, pages.size());
    for (std::size_t i = pages.size(); i-- > 0;)
      place_of_page[static_cast<std::size_t>(pages[i])] = i;
    known = sequence;
  };
  return listed_->translated([&](std::size_t item, std::size_t query, std::int64_t slot) {
    const auto at = static_cast<std::size_t>(slot);
    if (!slots_.empty()) {
      const auto& all = slots_[item];
      return std::int64_t(std::lower_bound(all.begin(), all.end(), slot) - all.begin());
    }
    const auto next = std::upper_bound(starts.begin(), starts.end(), std::int64_t(query));
    const auto sequence =
        packed_ ? static_cast<std::size_t>(next - starts.begin()) - 1 : std::size_t{item};
    if (sequence >= pages_.size()) return std::int64_t{-1};  // padding
    if (sequence != known) find_places(sequence);
    const std::size_t key = place_of_page[at / keys_.slots] * keys_.slots + at % keys_.slots;
    if (key >= lengths_[sequence] && problems.empty())
      report(problems, Input::key_indices,
             "slots with keys of the query's sequence, or -1 for none," + of_item(item) +
                 ", query " + std::to_string(query),
             std::to_string(slot));
    return static_cast<std::int64_t>(key);
  });
}

void PagedCache::gather(TensorMap& all, ProblemList& problems) const {
  const std::size_t S = keys_of_item();
  const auto set = [&](Input input, RowTable table) {
    const Tensor rows = tensor_of(std::move(table), given_.options.layout == Layout::bhld);
    const Shape& shape = rows.shape();
    all.set(std::string(name_of(input)), given_.options.layout == Layout::thd
                                             ? rows.reshaped({shape[1], shape[2], shape[3]})
                                             : rows);
  };
  const auto set_latent = [&](RowTable keys, RowTable values) {
    set(Input::K, std::move(keys));
    set(Input::V,
        limited_to(std::move(values), static_cast<std::size_t>(given_.options.value_width)));
  };
  if (is_flashmla(given_.options.k_type)) {
    FlashMlaRows rows(keys_, given_.options.k_type, items(), S);
    fill(rows);
    const RowTable keys = std::move(rows).table();
    return set_latent(keys, keys);
  }
  const auto rows_of = [&](const Pool& pool, const Storage& storage, const PoolRows* like) {
    PoolRows rows(pool, storage, given_, items(), S, problems, like);
    fill(rows);
    return rows;
  };
  PoolRows rows = rows_of(keys_, storage_of(Input::K), nullptr);
  if (given_.options.value_width == 0) {
    PoolRows values = rows_of(values_, storage_of(Input::V), &rows);
    set(Input::K, std::move(rows).table());
    return set(Input::V, std::move(values).table());
  }
  std::optional<PoolRows> rotary;
  if (rotary_) rotary.emplace(rows_of(*rotary_, kRotaryStorage, &rows));
  const RowTable keys = std::move(rows).table();
  set_latent(rotary ? joined_columns(keys, std::move(*rotary).table()) : keys, keys);
}

TensorMap PagedCache::gathered() const {
  TensorMap all;
  const auto is_replaced = [](Input input) {
    return std::find(kPageInputs.begin(), kPageInputs.end(), input) != kPageInputs.end() ||
           input == Input::key_lengths || storage_described_by(input) != nullptr;
  };
  for (const auto& [name, tensor] : given_.tensors)
    if (const auto input = input_named(name); !input || !is_replaced(*input)) all.set(name, tensor);
  ProblemList problems;
  gather(all, problems);
  if (!problems.empty()) problems.raise(ErrorKind::data);
  const std::size_t count = lengths_.size();
  const auto set_lists = [&] {
    if (!listed_) return all;
    const Tensor starts = packed_ ? cast(at(all, Input::cu_seqlens_q), DType::i64) : list({});
    all.set(std::string(name_of(Input::key_indices)),
            key_indices(starts.data<std::int64_t>(), problems));
    if (!problems.empty()) problems.raise(ErrorKind::data);
    return all;
  };
  if (!packed_) {
    all.set(std::string(name_of(Input::key_lengths)), list({lengths_.begin(), lengths_.end()}));
    return set_lists();
  }
  std::vector<std::int64_t> ends{0}, queries;
  for (const std::size_t length : lengths_)
    ends.push_back(ends.back() + static_cast<std::int64_t>(length));
  if (!contains(given_.tensors, Input::cu_seqlens_q)) {
    const std::size_t rows = at(given_.tensors, Input::Q).shape()[0];
    for (std::size_t b = 0; b <= count; ++b)
      queries.push_back(static_cast<std::int64_t>(count == 1 ? b * rows : b));
    all.set(std::string(name_of(Input::cu_seqlens_q)), list(queries));
  }
  all.set(std::string(name_of(Input::cu_seqlens_k)), list(ends));
  return set_lists();
}

}  // namespace attn
