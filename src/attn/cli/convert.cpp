#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "attn/cli/command.h"
#include "attn/cli/tensors_of.h"
#include "attn/io/csv.h"
#include "attn/io/json.h"
#include "attn/io/npy.h"
#include "attn/io/npz.h"
#include "attn/report/numpy_text.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

enum class Target { text, json, csv, npy, npz };

/// What was typed.
struct Typed {
  std::string input, output = "-", format, dtype, floatmode = "maxprec";
  bool repr = false, force = false;
  PrintOptions print;
  std::vector<const CLI::Option*> text_only;  ///< options that shape text and nothing else
};

/// What is meant.
struct Conversion {
  TensorRef input;
  std::string output;
  Target target = Target::text;
  std::optional<DType> dtype;
  bool repr = false, force = false;
  PrintOptions print;
};

void add_text_options(CLI::App& app, Typed& typed) {
  const auto text_option = [&](CLI::Option* option) {
    typed.text_only.push_back(option);
    return option->group("Text, as numpy.set_printoptions")->capture_default_str();
  };
  text_option(
      app.add_flag("--repr", typed.repr, "array([...]) with its dtype, as repr() prints it"));
  text_option(app.add_option("--precision", typed.print.precision, "Digits after the point"))
      ->check(CLI::Range(0, 1100));  // 1074 digits write any float64 in full
  text_option(app.add_option("--threshold", typed.print.threshold,
                             "Arrays of more elements are summarised with '...'"))
      ->check(CLI::NonNegativeNumber);
  text_option(app.add_option("--edgeitems", typed.print.edgeitems,
                             "Elements shown at each end of a summarised axis"))
      ->check(CLI::NonNegativeNumber);
  text_option(app.add_option("--linewidth", typed.print.linewidth, "Characters a line may have"))
      ->check(CLI::PositiveNumber);
  text_option(app.add_flag("--suppress", typed.print.suppress, "No e-notation for small numbers"));
  text_option(app.add_option("--floatmode", typed.floatmode, "How many digits floats get"))
      ->check(CLI::IsMember({"fixed", "unique", "maxprec", "maxprec_equal"}));
}

PrintOptions::FloatMode float_mode(const std::string& word) {
  using enum PrintOptions::FloatMode;
  if (word == "fixed") return fixed;
  if (word == "unique") return unique;
  return word == "maxprec" ? maxprec : maxprec_equal;
}

std::optional<Target> target_named(const std::string& format) {
  if (format.empty()) return std::nullopt;
  return format == "json" ? Target::json : format == "csv" ? Target::csv : Target::text;
}

std::optional<Target> target_of_suffix(const std::string& path) {
  const std::optional<Format> format = format_of_suffix(path);
  if (!format) return std::nullopt;
  switch (*format) {
    case Format::npy:
      return Target::npy;
    case Format::npz:
      return Target::npz;
    case Format::json:
      return Target::json;
    case Format::csv:
      break;
  }
  return Target::csv;
}

Target target_of(const Typed& typed) {
  const std::optional<Target> named = target_named(typed.format);
  if (typed.output == "-") return named.value_or(Target::text);
  const std::optional<Target> suffix = target_of_suffix(typed.output);
  if (named && suffix && *named != *suffix)
    throw Error(ErrorKind::usage, printable(typed.output) +
                                      ": its suffix says otherwise than --format " + typed.format);
  if (!named && !suffix)
    throw Error(ErrorKind::usage, printable(typed.output) +
                                      ": expected a name that ends in .npy, .npz, .json or .csv, "
                                      "or --format text, json or csv");
  return named ? *named : *suffix;
}

std::optional<DType> dtype_typed(const std::string& name) {
  if (name.empty()) return std::nullopt;
  const std::optional<DType> dtype = dtype_named(name);
  if (!dtype)
    throw Error(ErrorKind::usage, "--dtype: '" + printable(name) +
                                      "' is none of f64 f32 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 "
                                      "bool, nor NumPy's name of one");
  return dtype;
}

Conversion meant(const Typed& typed) {
  Conversion conversion;
  conversion.input = parse_tensor_ref(typed.input);
  conversion.output = typed.output;
  conversion.target = target_of(typed);
  conversion.dtype = dtype_typed(typed.dtype);
  conversion.repr = typed.repr;
  conversion.force = typed.force;
  conversion.print = typed.print;
  conversion.print.floatmode = float_mode(typed.floatmode);
  for (const CLI::Option* option : typed.text_only)
    if (option->count() > 0 && conversion.target != Target::text)
      throw Error(ErrorKind::usage,
                  option->get_name() + ": shapes text only, not files of numbers");
  return conversion;
}

/// The tensors to write; .npy and .csv hold one, so then the input has to name or be a single one.
TensorMap read_input(const Conversion& conversion) {
  TensorFiles files;
  const TensorRef& ref = conversion.input;
  TensorMap tensors;
  if (conversion.target == Target::npy || conversion.target == Target::csv)
    tensors.set(ref.member, files.read(ref));
  else
    tensors = tensors_of(ref, files);
  if (!conversion.dtype) return tensors;
  TensorMap result;
  for (const auto& [name, tensor] : tensors) {
    try {
      result.set(name, cast(tensor, *conversion.dtype));
    } catch (const Error& error) {
      throw Error(error.kind(), label_of(ref.path, name) + ": " + error.what());
    }
  }
  return result;
}

/// Each array as NumPy prints it. Those that have names stand under "NAME:", with an empty line
/// between one and the next.
std::string as_text(const TensorMap& tensors, const Conversion& conversion) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    if (!text.empty()) text += "\n";
    if (!name.empty()) text += printable(name) + ":\n";
    text += conversion.repr ? numpy_repr(tensor, conversion.print)
                            : numpy_str(tensor, conversion.print);
    text += "\n";
  }
  return text;
}

/// A file's only, nameless tensor, or the member that was asked for, is an array of its own; the
/// tensors of a file that names them are an object.
std::string as_json(const TensorMap& tensors, const TensorRef& ref) {
  const bool alone = tensors.size() == 1 && tensors.contains(ref.member);
  if (alone) return to_json(tensors.at(ref.member), 2) + "\n";
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    text += text.empty() ? "{\n  " : ",\n  ";
    text += json_quoted(name) + ": " + to_json(tensor, 4);
  }
  return text.empty() ? "{}\n" : text + "\n}\n";
}

/// numpy.savez calls an array without a name "arr_0".
TensorMap with_names(const TensorMap& tensors) {
  TensorMap named;
  for (const auto& [name, tensor] : tensors) named.set(name.empty() ? "arr_0" : name, tensor);
  return named;
}

int convert(const Conversion& conversion) {
  const TensorMap tensors = read_input(conversion);
  const TensorRef& ref = conversion.input;
  OutputFile out(conversion.output, {conversion.force, {ref.path}});
  switch (conversion.target) {
    case Target::text:
      out.write(as_text(tensors, conversion));
      break;
    case Target::json:
      out.write(as_json(tensors, ref));
      break;
    case Target::csv:
      out.write(to_csv(tensors.at(ref.member), label_of(ref.path, ref.member)));
      break;
    case Target::npy:
      write_npy(tensors.at(ref.member), out);
      break;
    case Target::npz:
      write_npz(with_names(tensors), "", out);
      break;
  }
  out.commit();
  return 0;
}

}  // namespace

Action add_convert(CLI::App& app) {
  const auto typed = std::make_shared<Typed>();
  app.description(
      "Converts a tensor file to another format, or prints it as NumPy does.\n\n"
      "Example:\n"
      "  attn convert weights.npz#W_Q --repr\n"
      "  attn convert embeddings.csv -o embeddings.npy --dtype f32");
  app.add_option("input", typed->input, "A .npy, .npz, .json or .csv file, '-' for standard input")
      ->type_name("FILE[#NAME]")
      ->required();
  app.add_option("-o,--output", typed->output,
                 "Where to; the suffix .npy, .npz, .json or .csv says the format")
      ->type_name("OUT");
  app.add_option("--format", typed->format, "Instead of the suffix; standard output: text")
      ->check(CLI::IsMember({"text", "json", "csv"}));
  app.add_option("--dtype", typed->dtype, "Convert the elements first: f64, f32, i64, bool, ...");
  app.add_flag("--force", typed->force, "Replace OUT if it exists");
  add_text_options(app, *typed);
  return [typed] { return convert(meant(*typed)); };
}

}  // namespace attn
