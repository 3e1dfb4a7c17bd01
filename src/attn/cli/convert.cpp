// attn convert: converts tensor files, or prints them as text.
#include <memory>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/cli/all_commands.h"
#include "attn/cli/emit.h"
#include "attn/cli/rendering.h"
#include "attn/cli/shared_options.h"
#include "attn/cli/terminal.h"
#include "attn/io/format.h"

namespace attn {
namespace {

struct ConvertArgs {
  std::string input, dtype;
  EmitArgs emit;
  LimitArgs limits;
};

std::optional<DType> parse_dtype(const std::string& name) {
  if (name.empty()) return std::nullopt;
  const std::optional<DType> dtype = dtype_named(name);
  if (!dtype)
    fail_usage("--dtype: unknown dtype '" + printable(name) +
               "'; expected f64, f32, f16, bf16, i8, i16, i32, i64, u8, "
               "u16, u32, u64, bool, or NumPy's name of one of these");
  return dtype;
}

/// The tensors to write. A tensor selected by name, or written to a format that holds one tensor,
/// becomes unnamed.
TensorMap tensors_to_convert(const TensorRef& ref, bool one, TensorFiles& files) {
  if (!one && ref.member.empty()) return tensors_of(ref, files);
  TensorMap alone;
  alone.set("", files.read(ref));
  return alone;
}

TensorMap converted(const TensorMap& tensors, DType dtype, const TensorRef& ref) {
  TensorMap result;
  for (const auto& [name, tensor] : tensors) {
    try {
      result.set(name, cast(tensor, dtype));
    } catch (const Error& error) {
      const std::string& member = name.empty() ? ref.member : name;
      throw error.within(label_of(ref.path, member));
    }
  }
  return result;
}

/// Tells which dtype the file has if its format lacks the one that was asked for.
void note_stored_dtype(DType wanted, const std::string& path) {
  const FormatRow* const format = format_of_suffix(path);
  if (format == nullptr || format->stored_dtype == nullptr) return;
  const DType stored = format->stored_dtype(wanted);
  if (stored != wanted)
    note(printable(path) + ": written as " + std::string(name_of(stored)) +
         ", which holds the same numbers; " + std::string(format->title) + " has no " +
         std::string(name_of(wanted)));
}

int convert(ConvertArgs& args) {
  const std::optional<DType> dtype = parse_dtype(args.dtype);
  const TensorRef ref = parse_tensor_ref(args.input);
  TensorFiles files(reading_limits(args.limits, FileAccess::map));
  TensorMap tensors = tensors_to_convert(ref, holds_one(args.emit), files);
  if (dtype) tensors = converted(tensors, *dtype, ref);
  if (!ref.member.empty()) args.emit.alone = ref.member;
  emit_tensors(tensors, args.emit);
  if (dtype) note_stored_dtype(*dtype, args.emit.output);
  return 0;
}

}  // namespace

Command convert_command() {
  const auto args = std::make_shared<ConvertArgs>();
  Command command;
  command.extra_hint = "the output file follows -o, as in -o out.csv";
  command.description = "Converts a tensor file to another format, or prints it as NumPy does.";
  command.example =
      "  attn convert weights.npz#W_Q --repr\n"
      "  attn convert embeddings.csv -o embeddings.npy --dtype f32";
  command.add(required(positional(
      "FILE", args->input,
      "FILE or FILE#NAME: .npz, .safetensors, .npy, .json or .csv; - for standard input")));
  command.add(text("--dtype", args->dtype, "DTYPE",
                   "convert to this dtype first: f64, f32, i64, bool, ..."));
  add_emit_options(command, args->emit);
  add_limit_options(command, args->limits);
  command.action = [args] { return convert(*args); };
  return command;
}

}  // namespace attn
