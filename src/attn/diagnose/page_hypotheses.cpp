// Mistakes about a cache in pages: tables and lengths that a kernel may have read instead of those
// of the job. Slots behind the last key may hold anything, and a kernel that reads them shows it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "attn/cache/pages.h"
#include "attn/diagnose/changes.h"
#include "attn/diagnose/hypotheses.h"

namespace attn {
namespace {

/// The pages of a cache, with those that the job's table has behind the keys of a sequence.
class PageTable {
 public:
  explicit PageTable(const Variant& variant)
      : cache_({*variant.cache, variant.options}), sequences_(cache_.sequences()) {
    const bool is_table = contains(*variant.cache, Input::block_table);
    const auto numbers = [&](Input input) { return cast(at(*variant.cache, input), DType::i64); };
    pages_ = numbers(is_table ? Input::block_table : Input::kv_indices);
    if (is_table)
      columns_ = pages_.shape()[1];
    else
      starts_ = numbers(Input::kv_indptr);
  }

  std::size_t count() const { return sequences_.lengths.size(); }
  std::size_t length(std::size_t b) const { return sequences_.lengths[b]; }
  std::size_t page_size() const { return cache_.page_size(); }
  /// Of block_table; 0: the job has kv_indices.
  std::size_t columns() const { return columns_; }

  /// Page i of sequence b, which may be behind its keys; nullopt: none, or none of the pool.
  std::optional<std::int64_t> page(std::size_t b, std::size_t i) const {
    const auto all = pages_.data<std::int64_t>();
    if (columns_ > 0 && i >= columns_) return std::nullopt;
    const std::size_t first =
        columns_ > 0 ? b * columns_ : static_cast<std::size_t>(starts_.data<std::int64_t>()[b]);
    if (first + i >= all.size() || !is_page(all[first + i])) return std::nullopt;
    return all[first + i];
  }
  bool is_page(std::int64_t page) const {
    return page >= 0 && std::cmp_less(page, cache_.pool_pages());
  }

  /// Sets sequence b to `length` keys in pages page_of(i), or as many as there are pages for.
  template <class PageOf>
  void set(std::size_t b, std::size_t length, PageOf page_of) {
    sequences_.pages[b].clear();
    std::size_t keys = 0;
    while (keys < length) {
      const std::optional<std::int64_t> page = page_of(sequences_.pages[b].size());
      if (!page) break;
      sequences_.pages[b].push_back(*page);
      keys += std::min(page_size(), length - keys);
    }
    sequences_.lengths[b] = keys;
  }

  /// Sets the keys and values of the variant. False: they are those of the job.
  bool apply(Variant& variant) {
    const TensorMap gathered = gathered_pages();
    for (const Input input : {Input::K, Input::V, Input::key_lengths, Input::cu_seqlens_k})
      if (const Tensor* tensor = find(gathered, input)) variant.set(input, *tensor);
    return !gathered.empty();
  }

  /// Sets only the scales of keys and values. False: they are those of the job.
  bool apply_scales(Variant& variant) {
    bool is_changed = false;
    Variant other{{gathered_pages(), variant.options}};
    for (const Input input : {Input::K, Input::V}) {
      const RowTable *given = table_of_stored(variant, input),
                     *changed = table_of_stored(other, input);
      if (given == nullptr || changed == nullptr || !given->factors) continue;
      if (given->rows->size() != changed->rows->size()) continue;  // too few pages in the pool
      if (given->factors->starts == changed->factors->starts) continue;
      RowTable table = *given;
      table.factors = changed->factors;
      set_table(variant, input, std::move(table));
      is_changed = true;
    }
    return is_changed;
  }

 private:
  /// Keys, values and lengths; empty: they are those of the job.
  TensorMap gathered_pages() {
    if (sequences_ == cache_.sequences()) return {};
    cache_.set_sequences(sequences_);
    return cache_.gathered();
  }

  PagedCache cache_;
  PagedCache::Sequences sequences_;
  Tensor pages_, starts_;
  std::size_t columns_ = 0;
};

/// A hypothesis that changes each sequence with change(table, b).
template <class Change>
bool change_sequences(Variant& variant, Change change) {
  if (variant.cache == nullptr) return false;
  PageTable table(variant);
  const PageTable given = table;
  for (std::size_t b = 0; b < table.count(); ++b) change(given, b, table);
  return table.apply(variant);
}

/// How many keys fit in the pages of sequence b.
std::size_t keys_of_whole_pages(const PageTable& table, std::size_t b) {
  return (table.length(b) + table.page_size() - 1) / table.page_size() * table.page_size();
}

/// Sequences of other lengths in the pages of the table.
template <class Length>
bool change_lengths(Variant& variant, Length length_of) {
  return change_sequences(variant, [&](const PageTable& given, std::size_t b, PageTable& table) {
    table.set(b, length_of(given, b), [&](std::size_t i) { return given.page(b, i); });
  });
}

/// The pages of sequence other(b) instead of those of b.
template <class Other>
bool change_rows(Variant& variant, Other other) {
  return change_sequences(variant, [&](const PageTable& given, std::size_t b, PageTable& table) {
    const std::size_t row = other(given, b);
    table.set(b, given.length(b), [&](std::size_t i) { return given.page(row, i); });
  });
}

enum class LastPage { any, full };

/// Whether the table has another page behind the last one of some sequence, whose last page is
/// `last`.
bool has_page_more(const Variant& variant, LastPage last) {
  const PageTable table(variant);
  for (std::size_t b = 0; b < table.count(); ++b) {
    const std::size_t keys = keys_of_whole_pages(table, b);
    if ((last == LastPage::any || keys == table.length(b)) &&
        table.page(b, keys / table.page_size()))
      return true;
  }
  return false;
}

std::string of_keys(const Variant& variant) {
  return " of " + std::to_string(PageTable(variant).page_size()) + " keys";
}

Found with_a_key_more(Variant& variant, const Inputs&) {
  if (!change_lengths(variant, [](const PageTable& t, std::size_t b) { return t.length(b) + 1; }))
    return std::nullopt;
  return words("one key too many of each sequence, as stored in its pages");
}

/// A kernel that reads no new page. Without a sequence whose last page is full, it is the same as
/// with_a_key_more().
Found with_a_slot_more(Variant& variant, const Inputs&) {
  const auto length = [](const PageTable& t, std::size_t b) {
    return std::min(t.length(b) + 1, keys_of_whole_pages(t, b));
  };
  if (variant.cache == nullptr || !has_page_more(variant, LastPage::full) ||
      !change_lengths(variant, length))
    return std::nullopt;
  return words("one key too many of each sequence whose last page is not full, as stored");
}

Found with_whole_last_page(Variant& variant, const Inputs&) {
  if (!change_lengths(variant, keys_of_whole_pages)) return std::nullopt;
  return words("the last page" + of_keys(variant) + " read to its end, as stored");
}

Found with_a_page_more(Variant& variant, const Inputs&) {
  const auto length = [](const PageTable& t, std::size_t b) {
    return keys_of_whole_pages(t, b) + t.page_size();
  };
  if (variant.cache == nullptr || !has_page_more(variant, LastPage::any) ||
      !change_lengths(variant, length))
    return std::nullopt;
  return words("one page" + of_keys(variant) + " too many, as the table has it");
}

/// Lengths divided by the page size and rounded down.
Found without_last_page(Variant& variant, const Inputs&) {
  const auto length = [](const PageTable& t, std::size_t b) {
    return t.length(b) / t.page_size() * t.page_size();
  };
  if (!change_lengths(variant, length)) return std::nullopt;
  return words("the last page" + of_keys(variant) + " left out unless it is full");
}

Found with_lengths_of_first(Variant& variant, const Inputs&) {
  if (!change_lengths(variant, [](const PageTable& t, std::size_t) { return t.length(0); }))
    return std::nullopt;
  return words("the length of sequence 0 for all");
}

Found with_pages_of_first(Variant& variant, const Inputs&) {
  if (!change_rows(variant, [](const PageTable&, std::size_t) { return std::size_t{0}; }))
    return std::nullopt;
  return words("the pages of sequence 0 for all");
}

Found with_pages_of_next(Variant& variant, const Inputs&) {
  if (!change_rows(variant, [](const PageTable& t, std::size_t b) { return (b + 1) % t.count(); }))
    return std::nullopt;
  return words("the pages of the next sequence");
}

/// Page i of sequence b is page b * columns + i of the pool.
Found without_table(Variant& variant, const Inputs&) {
  const bool is_changed =
      change_sequences(variant, [](const PageTable& given, std::size_t b, PageTable& table) {
        if (given.columns() == 0) return;
        table.set(b, given.length(b), [&](std::size_t i) {
          const auto page = static_cast<std::int64_t>(b * given.columns() + i);
          return given.is_page(page) ? std::optional(page) : std::nullopt;
        });
      });
  if (!is_changed) return std::nullopt;
  return words("block_table ignored: pages in the order of the pool");
}

Found with_reversed_pages(Variant& variant, const Inputs&) {
  const bool is_changed =
      change_sequences(variant, [](const PageTable& given, std::size_t b, PageTable& table) {
        const std::size_t count = keys_of_whole_pages(given, b) / given.page_size();
        table.set(b, given.length(b), [&](std::size_t i) { return given.page(b, count - 1 - i); });
      });
  if (!is_changed) return std::nullopt;
  return words("the pages of each sequence in reverse order");
}

/// A scale of each page, read at the place of the page in its sequence.
Found with_scales_by_place(Variant& variant, const Inputs&) {
  if (variant.cache == nullptr) return std::nullopt;
  PageTable table(variant);
  for (std::size_t b = 0; b < table.count(); ++b)
    table.set(b, table.length(b), [&](std::size_t i) {
      const auto page = static_cast<std::int64_t>(i);
      return table.is_page(page) ? std::optional(page) : std::nullopt;
    });
  if (!table.apply_scales(variant)) return std::nullopt;
  return words("scale i of the pool for page i of each sequence");
}

/// Calls at(g, c) for each NaN, in head g and column c, of a row of a table of floats.
template <class At>
void for_each_nan(const RowTable& table, std::size_t row, At at) {
  const std::int64_t start = (*table.rows)[row];
  visit(table.pool.dtype(), [&]<class T>(Type<T>) {
    const auto pool = table.pool.data<T>();
    for (std::size_t g = 0; start != RowTable::kZeros && g < table.heads; ++g)
      for (std::size_t c = 0; c < table.width; ++c) {
        const std::int64_t place = table.first + start + static_cast<std::int64_t>(g) * table.head +
                                   static_cast<std::int64_t>(c);
        if (std::isnan(static_cast<double>(pool[static_cast<std::size_t>(place)]))) at(g, c);
      }
  });
}

/// Calls at(b, g, c) for each NaN of K or V in the pages of sequence b behind its last key; none if
/// the sequences are packed. Returns where the first one is.
template <class At>
std::string for_each_nan_behind(const Variant& given, Input input, At at) {
  if (given.cache == nullptr) return "";
  Variant whole = given;
  if (!change_lengths(whole, keys_of_whole_pages)) return "";
  const PageTable table(given);
  const Tensor* tensor = whole.find(input);
  if (tensor == nullptr || tensor->rows() == nullptr) return "";
  const RowTable& rows = *tensor->rows()->table();
  if (!is_float(rows.pool.dtype()) || rows.items != table.count()) return "";
  std::string place;
  for (std::size_t b = 0; b < rows.items; ++b)
    for (std::size_t j = table.length(b); j < rows.keys; ++j)
      for_each_nan(rows, b * rows.keys + j, [&](std::size_t g, std::size_t c) {
        if (place.empty())
          place = "slot " + std::to_string(j) + " of the pages of sequence " + std::to_string(b) +
                  ", behind its last key, holds NaN in " + std::string(name_of(input));
        at(b, g, c);
      });
  return place;
}

/// A NaN behind the last key counts as one of key 0 in the same column: times a weight of 0, or as
/// a score to which -inf is added.
template <Input input>
Found with_nan_behind(Variant& variant, const Inputs& in) {
  const Tensor* given = variant.find(input);
  if (given == nullptr || given->rank() != 4 || in.options.window.left >= 0) return std::nullopt;
  const bool is_by_head = in.options.layout == Layout::bhld;
  const Shape& shape = given->shape();
  const std::size_t keys = shape[is_by_head ? 2 : 1], heads = shape[is_by_head ? 1 : 2];
  std::optional<Tensor> changed;
  const std::string place =
      for_each_nan_behind(variant, input, [&](std::size_t b, std::size_t g, std::size_t c) {
        if (!changed) changed = cast(*given, DType::f64);
        const std::size_t row = is_by_head ? (b * heads + g) * keys : b * keys * heads + g;
        if (keys > 0) changed->mutable_data<double>()[row * shape[3] + c] = std::nan("");
      });
  if (!changed) return std::nullopt;
  variant.set(input, *changed);
  return words(std::string(input == Input::V ? "weights of 0 times values behind the last key"
                                             : "-inf added to scores behind the last key") +
               " (" + place + ")");
}

}  // namespace

std::string nan_behind_keys(const Variant& given) {
  for (const Input input : {Input::K, Input::V})
    if (const std::string place =
            for_each_nan_behind(given, input, [](std::size_t, std::size_t, std::size_t) {});
        !place.empty())
      return place + ": a kernel that reads it returns NaN, also with a weight of 0";
  return "";
}

Hypotheses page_hypotheses() {
  return {
      {"pages.key_more", kProjection, with_a_key_more},
      {"pages.slot_more", kProjection, with_a_slot_more},
      {"pages.last_whole", kProjection, with_whole_last_page},
      {"pages.page_more", kProjection, with_a_page_more},
      {"pages.last_missing", kProjection, without_last_page},
      {"pages.lengths_first", kProjection, with_lengths_of_first},
      {"pages.of_first", kProjection, with_pages_of_first},
      {"pages.of_next", kProjection, with_pages_of_next},
      {"pages.no_table", kProjection, without_table},
      {"pages.reversed", kProjection, with_reversed_pages},
      {"pages.scales_by_place", kProjection, with_scales_by_place},
      {"pages.nan_values", kProjection, with_nan_behind<Input::V>},
      {"pages.nan_scores", kProjection, with_nan_behind<Input::K>},
  };
}

}  // namespace attn
