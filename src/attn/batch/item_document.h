// Reads the document of one item, from a file or a line.
#pragma once

#include <cstddef>
#include <optional>

#include "attn/batch/batch_context.h"
#include "attn/batch/item.h"
#include "attn/io/tensor_file.h"
#include "attn/job/document.h"

namespace attn {

/// Must not outlive the item.
class ItemDocument {
 public:
  explicit ItemDocument(const Item& item);

  /// Estimated bytes of the text and of its numbers, from the file's size.
  std::size_t memory() const { return memory_; }

  /// The batch's defaults, overridden by the item's own keys. May be called again: a pipe is read
  /// once and kept. The key "id" of a line is
  /// not part of the document, but is stored in `id` as JSON. Errors: as read_document().
  Document read(const BatchContext& context, TensorFiles& files, std::string& id);

 private:
  Document read_own(TensorFiles& files, std::string& id);

  const Item& item_;
  const std::size_t memory_;
  std::optional<FileBytes> pipe_contents_;
};

}  // namespace attn
