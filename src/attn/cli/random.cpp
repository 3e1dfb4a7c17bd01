#include "attn/cli/random.h"

#include <memory>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/cli/emit.h"
#include "attn/cli/shared_options.h"
#include "attn/core/plan.h"
#include "attn/io/json_parse.h"
#include "attn/job/field_value.h"
#include "attn/job/random_spec.h"

namespace attn {
namespace {

struct RandomArgs {
  std::string method, seed, generator = "RandomState", input;
  std::map<std::string, std::string> arguments;  ///< those given, by NumPy's names
  std::size_t repeat = 1;
  bool endpoint = false, no_replace = false;
  EmitArgs emit;
  LimitArgs limits;
};

[[noreturn]] void refuse_number(const std::string& name, const std::string& text) {
  const std::string expected = name == "shape" ? "whole numbers with commas, such as 3,3"
                               : name == "p"   ? "numbers with commas, such as 0.5,0.5"
                               : name == "n"   ? "a whole number"
                                               : "a number";
  throw Error(ErrorKind::usage,
              "--" + name + ": expected " + expected + ", found '" + printable(text) + "'");
}

Json number_argument(const std::string& name, const std::string& text) {
  // Integers beyond 64 bits (the end of uint64) are passed as a string.
  if (text.size() > 18 && entropy_words(text).has_value()) return Json{text};
  const std::optional<Json> number = number_from_flag(text);
  if (!number) refuse_number(name, text);
  return *number;
}

Json sizes_argument(const std::string& name, const std::string& text) {
  const bool trailing = text.ends_with(',');  // "3," as in Python's (3,)
  try {
    return parse_json("[" + text.substr(0, text.size() - (trailing ? 1 : 0)) + "]", "--" + name);
  } catch (const Error&) {
    refuse_number(name, text);
  }
}

Json numbers_argument(const std::string& name, const std::string& text) {
  JsonFloats numbers;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    const std::string part = text.substr(start, end - start);
    start = end + 1;
    const std::optional<Json> number = number_from_flag(part);
    if (!number || !number->as_number(numbers.emplace_back())) refuse_number(name, text);
  }
  return Json{numbers};
}

/// The value as in a job: [3, 3] for "--shape 3,3", a list for "--p 0.5,0.5".
Json argument_value(const std::string& name, const std::string& text) {
  if (name == "dtype") return Json{text};
  if (name == "shape") return sizes_argument(name, text);
  if (name == "p") return numbers_argument(name, text);
  return number_argument(name, text);
}

Json spec_of(const RandomArgs& args) {
  JsonObject arguments;
  for (const auto& [name, text] : args.arguments)
    arguments.emplace_back(name, argument_value(name, text));
  if (args.endpoint) arguments.emplace_back("endpoint", Json{true});
  if (args.no_replace) arguments.emplace_back("replace", Json{false});
  return Json{JsonObject{{args.method, Json{std::move(arguments)}}}};
}

/// The memory of one array: its elements, and where they are drawn from.
std::size_t drawn_bytes(const Json& spec, const std::optional<Tensor>& values) {
  constexpr std::size_t kCopies = 3, kElement = sizeof(double);
  const std::size_t given = values ? saturating_product({values->size(), kCopies, kElement}) : 0;
  return saturating_sum(static_cast<std::size_t>(random_tensor_bytes(spec)), given);
}

int run_random(const RandomArgs& args) {
  TensorFiles files(reading_limits(args.limits, FileAccess::read));
  TensorMap arrays;
  try {
    RandomStream stream =
        make_stream(value_from_flag(*find_field("seed"), args.seed, "--seed"), args.generator);
    const Json spec = spec_of(args);
    std::optional<Tensor> values;
    if (!args.input.empty()) values = files.read(parse_tensor_ref(args.input));
    for (std::size_t i = 0; i < args.repeat; ++i) {
      constexpr std::size_t kNamedTensor = 256;
      files.budget().charge(saturating_sum(drawn_bytes(spec, values), kNamedTensor), args.method,
                            "draw");
      Tensor drawn = random_tensor(spec, stream, values ? &*values : nullptr);
      // NumPy shuffles in place: the next repetition shuffles this result.
      if (args.method == "shuffle") values = drawn;
      arrays.set(args.repeat == 1 ? "" : "arr_" + std::to_string(i), std::move(drawn));
    }
  } catch (const Error& error) {
    // Without an input file, invalid data comes from the command line.
    const bool typed =
        error.kind() == ErrorKind::data && args.input.empty() && !files.budget().has_refused();
    throw Error(typed ? ErrorKind::usage : error.kind(), error.problems());
  }
  emit_tensors(arrays, args.emit, files);
  return 0;
}

Option argument(RandomArgs& args, const std::string& name, const std::string& placeholder,
                const std::string& help) {
  const auto store = [&args, name](const std::string& value) { args.arguments[name] = value; };
  return text("--" + name, Store<std::string>(store), placeholder, help);
}

}  // namespace

Command random_command() {
  const auto args = std::make_shared<RandomArgs>();
  Command command;
  command.description = "Generates arrays from NumPy's random streams, bit for bit.";
  command.example =
      "  attn random randint --seed 42 --high 3 --shape 3,3 --repeat 3\n"
      "  attn random normal --seed 0 --loc 1 --scale 0.02 --shape 512,64 -o w.npy";
  command.add({required(suggesting(
                   positional("METHOD", args->method, "NumPy's name for the method; see below"),
                   random_methods())),
               required(text("--seed", args->seed, "N[,M...]",
                             "N means np.random.seed(N); N,M means np.random.seed([N, M])")),
               word("--generator", args->generator, {"RandomState", "default_rng"},
                    "RandomState or default_rng"),
               integer("--repeat", args->repeat, {.min = 1}, "N",
                       "number of arrays to generate, one after another")});
  command.add(in_group(
      "Method arguments",
      {argument(*args, "shape", "N,M,...", "shape, such as 3,3; default: a single number"),
       argument(*args, "low", "X", "smallest value; default: 0"),
       argument(*args, "high", "X", "end of the range, exclusive"),
       argument(*args, "dtype", "DTYPE", "int8 to uint64 or bool; for random: float64 or float32"),
       argument(*args, "loc", "X", "mean; default: 0"),
       argument(*args, "scale", "X", "standard deviation; default: 1"),
       argument(*args, "n", "N", "permute or choose from the integers 0 to N-1"),
       argument(*args, "p", "X,Y,...", "probability of each element, for choice"),
       text("--input", args->input, "FILE",
            "tensor to permute, shuffle or choose from: FILE or FILE#NAME"),
       flag("--endpoint", args->endpoint, "integers: include high in the range"),
       flag("--no-replace", args->no_replace, "choice: draw without replacement")}));
  add_emit_options(command, args->emit);
  add_limit_options(command, args->limits);
  command.hints = {{{"--size"}, "use --shape"}};
  command.notes = "Methods and their arguments:\n" + random_methods_help();
  command.action = [args] { return run_random(*args); };
  return command;
}

}  // namespace attn
