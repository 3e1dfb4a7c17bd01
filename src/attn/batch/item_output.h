// Where an item's result goes: its file, or its folder of files.
#pragma once

#include <memory>
#include <string>

#include "attn/base/error.h"
#include "attn/batch/common.h"
#include "attn/batch/item.h"
#include "attn/io/tensor_file.h"
#include "attn/job/job.h"
#include "attn/result/result_writer.h"

namespace attn {

/// The folder that an item's file stands in, or its own folder.
std::string folder_of_output(const Naming& naming, const std::string& name);

/// Of one output there is to be one: which, only the job or a flag can say. Errors: usage.
void require_one_output(const Job& job, const Naming& naming);

/// All files of a result exist, and --no-clobber leaves them as they are.
struct NothingToAdd {};

/// Makes the folders that it needs and opens its files. Throws NothingToAdd. Errors: as
/// ResultWriter's.
std::unique_ptr<ResultWriter> writer_of_item(const Item& item, const Common& common, const Job& job,
                                             const TensorFiles& files);

/// What a resumed run says of an output that it does not replace.
Error not_ours(const ExistsAlready& error);

}  // namespace attn
