// Reads the document of one item, from a file or a line, and opens its result files.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "attn/base/error.h"
#include "attn/batch/batch_context.h"
#include "attn/batch/item.h"
#include "attn/io/tensor_file.h"
#include "attn/job/document.h"
#include "attn/job/job.h"
#include "attn/run/result_writer.h"

namespace attn {

/// Must not outlive the item.
class ItemDocument {
 public:
  explicit ItemDocument(const Item& item);

  /// Estimated bytes of the text and of its numbers, from the file's size.
  std::size_t memory() const { return memory_; }

  /// The batch's defaults, overridden by the item's own keys. May be called again: the contents of
  /// a pipe are kept. The key "id" of a line is not part of the document; its value is stored in
  /// `id` as JSON. Errors: as read_document().
  Document read(const BatchContext& context, TensorFiles& files, std::string& id);

 private:
  Document read_own(const KeySelection& only, TensorFiles& files, std::string& id);

  const Item& item_;
  const std::size_t memory_;
  std::optional<FileBytes> pipe_contents_;
};

/// The folder of the result file called `name`, or the result folder itself.
std::string folder_of_output(const Naming& naming, const std::string& name);

/// Errors: usage, if the format holds one output and the job has several.
void require_one_output(const Job& job, const Naming& naming);

/// Errors: usage, if the format holds one output and the first job has several, since probably all
/// jobs do. A job that cannot be read causes no error here; it will fail when it runs.
void require_one_output(const BatchContext& context, const JobFile& first);

/// Thrown if all files of a result exist and --no-clobber is given.
struct ResultExists {};

/// Creates missing folders and opens the files. Throws ResultExists. Errors: as ResultWriter.
std::unique_ptr<ResultWriter> writer_of_item(const Item& item, const BatchContext& context,
                                             const Job& job);

/// The error for a result file that exists and that --resume must not replace.
Error foreign_file_error(const ExistsAlready& error);

}  // namespace attn
