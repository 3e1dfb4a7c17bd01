// attn random: arrays from NumPy's random streams, by the names that NumPy gives the methods.
#include <CLI/CLI.hpp>
#include <memory>

#include "attn/cli/command.h"
#include "attn/cli/random_methods.h"
#include "attn/io/csv.h"
#include "attn/io/npy.h"
#include "attn/io/npz.h"
#include "attn/io/tensor_file.h"
#include "attn/report/numpy_text.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

struct Typed {
  DrawOptions draw;
  std::string output, format = "text";
  bool force = false, repr = false;
};

/// What formats of one array can hold.
const Tensor& only(const TensorMap& arrays) {
  if (arrays.size() > 1)
    throw Error(ErrorKind::usage,
                "--repeat: several arrays need text, JSON or .npz: .npy and CSV hold one");
  return arrays.begin()->second;
}

/// One array is a JSON array, several are an object of them.
std::string json_text(const TensorMap& arrays) {
  if (arrays.size() == 1) return to_json(only(arrays), 0) + "\n";
  std::string text;
  for (const auto& [name, tensor] : arrays)
    text += (text.empty() ? "{\n  " : ",\n  ") + json_quoted(name) + ": " + to_json(tensor, 2);
  return text + "\n}\n";
}

std::string numpy_text(const TensorMap& arrays, bool repr) {
  std::string text;
  for (const auto& [name, tensor] : arrays)
    text += (repr ? numpy_repr(tensor) : numpy_str(tensor)) + "\n";
  return text;
}

std::string stdout_text(const TensorMap& arrays, const Typed& typed) {
  if (typed.format == "json") return json_text(arrays);
  if (typed.format == "csv") return to_csv(only(arrays), "--format csv");
  return numpy_text(arrays, typed.repr);
}

Format output_format(const Typed& typed) {
  const auto format = format_of_suffix(typed.output);
  if (!format)
    throw Error(ErrorKind::usage, printable(typed.output) +
                                      ": expected a name that ends in .npy, .npz, .json or .csv");
  return *format;
}

void write_file(const TensorMap& arrays, const Typed& typed, const TensorFiles& files) {
  const Format format = output_format(typed);
  if (format == Format::npy || format == Format::csv) only(arrays);  // before there is a file
  OutputPolicy policy{typed.force, {}};
  for (const auto& [path, bytes] : files.files()) policy.inputs.insert(path);
  OutputFile out(typed.output, policy);
  switch (format) {
    case Format::npy:
      write_npy(only(arrays), out);
      break;
    case Format::npz:
      write_npz(arrays, "", out);
      break;
    case Format::json:
      out.write(json_text(arrays));
      break;
    case Format::csv:
      out.write(to_csv(only(arrays), typed.output));
      break;
  }
  out.commit();
}

int run_random(const Typed& typed) {
  if (!typed.output.empty()) output_format(typed);
  if (typed.repr && typed.format != "text")
    throw Error(ErrorKind::usage, "--repr: goes with --format text only");
  TensorFiles files;
  const std::string& path = typed.draw.input;
  const Tensor input = path.empty() ? Tensor() : files.read(parse_tensor_ref(path));
  const TensorMap arrays = draw(typed.draw, input);
  if (typed.output.empty())
    print(stdout_text(arrays, typed));
  else
    write_file(arrays, typed, files);
  return 0;
}

/// The options that depend on the method.
std::vector<CLI::Option*> add_drawing_options(CLI::App& app, DrawOptions& draw) {
  return {app.add_option("--shape", draw.shape, "Sizes, e.g. 3,3; without it, one number"),
          app.add_option("--low", draw.low, "Least value; 0 by default"),
          app.add_option("--high", draw.high, "End of the values, itself not drawn"),
          app.add_option("--dtype", draw.dtype,
                         "int8 to int64, uint8 to uint64, bool; for random: float64, float32"),
          app.add_option("--loc", draw.loc, "Mean")->capture_default_str(),
          app.add_option("--scale", draw.scale, "Standard deviation")->capture_default_str(),
          app.add_option("--n", draw.n, "Permute or choose from the numbers 0 to N-1"),
          app.add_option("--input", draw.input, "Permute or choose from FILE or FILE#NAME"),
          app.add_flag("--replace,!--no-replace", draw.replace,
                       "Whether an element can be chosen twice; by default it can"),
          app.add_option("--p", draw.p, "Probabilities, e.g. 0.5,0.2,0.3")};
}

void add_output_options(CLI::App& app, Typed& typed) {
  CLI::Option* const output =
      app.add_option("-o,--output", typed.output, "FILE.npy, .npz, .json or .csv");
  app.add_flag("--force", typed.force, "Replace FILE where it exists")->needs(output);
  app.add_option("--format", typed.format, "On standard output")
      ->check(CLI::IsMember({"text", "json", "csv"}))
      ->capture_default_str()
      ->excludes(output);
  app.add_flag("--repr", typed.repr, "Print array([...])")->excludes(output);
}

}  // namespace

Action add_random(CLI::App& app) {
  const auto typed = std::make_shared<Typed>();
  DrawOptions& draw = typed->draw;
  app.add_option("METHOD", draw.method, "By NumPy's name: see below")->required();
  app.add_option("--seed", draw.seed, "As in numpy.random.seed; N,M,... is seed([N, M, ...])")
      ->required();
  app.add_option("--generator", draw.generator, "numpy.random's RandomState, or default_rng")
      ->check(CLI::IsMember({"RandomState", "default_rng"}))
      ->capture_default_str();
  app.add_option("--repeat", draw.repeat, "How many arrays to draw, one after another")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  const std::vector<CLI::Option*> drawing = add_drawing_options(app, draw);
  add_output_options(app, *typed);
  app.footer(list_methods());
  return [typed, drawing] {
    for (const CLI::Option* option : drawing)
      if (option->count() > 0) typed->draw.typed.push_back(option->get_name());
    return run_random(*typed);
  };
}

}  // namespace attn
