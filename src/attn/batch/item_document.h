// An item's own document: a file, or a line.
#pragma once

#include <cstddef>
#include <optional>

#include "attn/batch/common.h"
#include "attn/batch/item.h"
#include "attn/io/tensor_file.h"
#include "attn/job/document.h"

namespace attn {

/// Lives no longer than the item.
class ItemDocument {
 public:
  explicit ItemDocument(const Item& item);

  /// Bytes of memory that it takes as text and as numbers, as far as stat() tells.
  std::size_t size() const { return size_; }

  /// On top of the base, which is an input of each item. May be called again, with other files:
  /// what can be read only once, such as a pipe, is kept. Errors: as read_document().
  Document read(const Common& common, TensorFiles& files);

 private:
  Document read_own(TensorFiles& files);

  const Item& item_;
  const std::size_t size_;
  std::optional<FileBytes> unrepeatable_;
};

}  // namespace attn
