#include "attn/batch/shard.h"

#include <charconv>

#include "attn/base/error.h"
#include "attn/base/printable.h"

namespace attn {
namespace {

/// Parses a number of at least 1; 0 if the text is anything else.
std::size_t positive(std::string_view text) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

class ShardItems final : public ItemSource {
 public:
  ShardItems(std::unique_ptr<ItemSource> source, const Shard& shard)
      : source_(std::move(source)), shard_(shard) {}

  std::optional<Item> next() override {
    for (;;) {
      std::optional<Item> item = source_->next();
      if (!item || (item->number - 1) % shard_.count == shard_.index - 1) return item;
    }
  }

  std::optional<std::size_t> count() const override {
    const std::optional<std::size_t> all = source_->count();
    if (!all) return all;
    return *all / shard_.count + (*all % shard_.count >= shard_.index ? 1 : 0);
  }

  bool has_more() const override { return source_->has_more(); }

 private:
  std::unique_ptr<ItemSource> source_;
  const Shard shard_;
};

}  // namespace

Shard parse_shard(const std::string& text) {
  if (text.empty()) return {};
  const std::size_t slash = std::min(text.find('/'), text.size());
  const Shard shard{positive(std::string_view(text).substr(0, slash)),
                    slash < text.size() ? positive(std::string_view(text).substr(slash + 1)) : 0};
  if (shard.index == 0 || shard.index > shard.count)
    throw Error(ErrorKind::usage,
                "--shard: expected I/N with 1 <= I <= N, found '" + printable(text) + "'");
  return shard;
}

std::unique_ptr<ItemSource> shard_of(std::unique_ptr<ItemSource> source, const Shard& shard) {
  if (shard.count == 1) return source;
  return std::make_unique<ShardItems>(std::move(source), shard);
}

}  // namespace attn
