// Options that several commands share: --max-memory and --max-expand, the text form of tensors (as
// in numpy.set_printoptions), and heat maps on the terminal.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "attn/cli/batch_report.h"
#include "attn/cli/command.h"
#include "attn/cli/executor.h"
#include "attn/cli/option.h"
#include "attn/cli/rendering.h"
#include "attn/io/file_cache.h"
#include "attn/io/json_write.h"
#include "attn/job/print_settings.h"

namespace attn {

struct LimitArgs {
  std::string max_memory, max_expand;
};

void add_limit_options(Command& command, LimitArgs& args);

/// The limits of commands that compute; `memory` is --max-memory, for the whole process, or by
/// default its share of the machine's. Errors: usage.
ReadLimits limits_of(const LimitArgs& args, const Executor& executor = local_executor());

/// The limits of commands that only read or convert. Without --max-memory, mapped inputs are not
/// limited, as they are not all in memory. Errors: usage.
ReadLimits reading_limits(const LimitArgs& args, FileAccess access);

struct TextArgs {
  bool repr = false;
  Document settings;  ///< the print_options of a job, replaced by flags
  Document flags;     ///< as print_options
};

/// --repr, --style, --precision and others, in a separate group.
std::vector<Option> text_options(TextArgs& args);

/// Errors: usage, for flags without effect in the style.
PrintOptions print_options_of(const TextArgs& args);

/// A tensor as str() or repr() print it in the chosen style. Errors: usage.
std::string format_tensor(const Tensor& tensor, const TextArgs& args);

/// --progress
Option progress_option(ProgressStyle& style);

/// --view, --view=FILE or, for a FILE with a suffix of a picture, --view FILE.
Option view_option(std::string& target, const std::string& help);

/// --color and --width, of heat maps on the terminal.
std::vector<Option> terminal_options(RenderStyle& style);

/// --dark, --size and --dpi, of heat maps as SVG and PNG.
std::vector<Option> picture_style_options(RenderStyle& style);

/// Their conditions. `output` is the file, and `flag` the option that names it: "-o " or "--view=".
void add_picture_requirements(Command& command, const std::string& output, const std::string& flag);

/// --head, --batch and --layer.
std::vector<Option> panel_options(HeatChoice& choice);

}  // namespace attn
