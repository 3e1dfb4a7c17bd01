// attn random: generates arrays from NumPy's random streams.
#include <algorithm>
#include <map>
#include <memory>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/cache/pages.h"
#include "attn/cli/all_commands.h"
#include "attn/cli/emit.h"
#include "attn/cli/shared_options.h"
#include "attn/cli/terminal.h"
#include "attn/compare/job_variant.h"
#include "attn/diagnose/sensitivity.h"
#include "attn/io/json_parse.h"
#include "attn/job/draws.h"
#include "attn/job/field_value.h"
#include "attn/job/job.h"
#include "attn/job/random_spec.h"
#include "attn/model/model_job.h"
#include "attn/tensor/gathered_rows.h"
#include "attn/tensor/transposed.h"

namespace attn {
namespace {

struct RandomArgs {
  std::string method, generator = "RandomState", input;
  std::string kind, job;  ///< --kind, --for
  std::optional<std::string> seed;
  std::map<std::string, std::string> arguments;  ///< those given, by their names in a job
  std::map<std::string, bool> booleans;
  std::size_t repeat = 1;
  EmitArgs emit;
  LimitArgs limits;
};

/// "--shape"; the name of a boolean that is true by default follows "--no-".
std::string flag_of(const RandomArgument& argument) {
  if (argument.kind == ArgumentKind::tensor) return "--input";
  std::string name(argument.name);
  std::replace(name.begin(), name.end(), '_', '-');
  return (argument.kind == ArgumentKind::on ? "--no-" : "--") + name;
}

[[noreturn]] void refuse_number(const RandomArgument& argument, const std::string& text) {
  const std::string expected =
      argument.kind == ArgumentKind::sizes            ? "whole numbers with commas, such as 3,3"
      : argument.kind == ArgumentKind::numbers        ? "numbers with commas, such as 0.5,0.5"
      : std::string_view(argument.placeholder) == "N" ? "a whole number"
                                                      : "a number";
  fail_usage(flag_of(argument) + ": expected " + expected + ", found '" + printable(text) + "'");
}

Json number_argument(const RandomArgument& argument, const std::string& text) {
  const bool is_digits = entropy_words(text).has_value();
  const std::string digits =
      is_digits ? text.substr(std::min(text.find_first_not_of('0'), text.size() - 1)) : text;
  // Integers beyond 64 bits (the end of uint64) are passed as a string.
  if (is_digits && digits.size() > 18) return Json{digits};
  const std::optional<Json> number = number_from_flag(digits);
  if (!number) refuse_number(argument, text);
  return *number;
}

/// "2, 3" of "(2, 3)" or "[2, 3]".
std::string without_brackets(const std::string& text) {
  const bool are_round = text.starts_with('(') && text.ends_with(')');
  const bool are_square = text.starts_with('[') && text.ends_with(']');
  return are_round || are_square ? text.substr(1, text.size() - 2) : text;
}

Json sizes_argument(const RandomArgument& argument, const std::string& given) {
  const std::string text = without_brackets(given);
  const bool trailing = text.ends_with(',');  // "3," as in Python's (3,)
  try {
    return parse_json("[" + text.substr(0, text.size() - (trailing ? 1 : 0)) + "]",
                      flag_of(argument));
  } catch (const Error&) {
    refuse_number(argument, given);
  }
}

Json numbers_argument(const RandomArgument& argument, const std::string& text) {
  JsonFloats numbers;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    const std::string part = text.substr(start, end - start);
    start = end + 1;
    const std::optional<Json> number = number_from_flag(part);
    if (!number || !number->as_number(numbers.emplace_back())) refuse_number(argument, text);
  }
  if (numbers.size() == 1 && text.back() != ',') return Json{numbers.front()};
  return Json{numbers};
}

/// The value as in a job: [3, 3] for "--shape 3,3", a list for "--p 0.5,0.5".
Json argument_value(const RandomArgument& argument, const std::string& text) {
  switch (argument.kind) {
    case ArgumentKind::sizes:
      return sizes_argument(argument, text);
    case ArgumentKind::numbers:
      return numbers_argument(argument, text);
    case ArgumentKind::number:
      return number_argument(argument, text);
    default:
      return Json{text};
  }
}

Json spec_of(const RandomArgs& args) {
  JsonObject arguments;
  for (const RandomArgument& argument : random_argument_table()) {
    const std::string name(argument.name);
    if (const auto text = args.arguments.find(name); text != args.arguments.end())
      arguments.emplace_back(name, argument_value(argument, text->second));
    if (const auto on = args.booleans.find(name); on != args.booleans.end() && on->second)
      arguments.emplace_back(name, Json{argument.kind == ArgumentKind::off});
  }
  return Json{JsonObject{{args.method, Json{std::move(arguments)}}}};
}

/// Draws the tensors of a file with a list of steps.
TensorMap run_steps(const RandomArgs& args, RandomStream& stream, TensorFiles& files) {
  const FileBytes& file = files.file(args.method);
  MemoryCharge charge(&files.budget(), file.name());
  const Json list = parse_json(file.text(), file.name(), charge);
  const auto steps = list.get<JsonArray>();
  if (steps == nullptr)
    fail_data({.where = {file.name()},
               .expected = "a list of steps",
               .found = list.kind(),
               .hint = list.get<JsonObject>() != nullptr ? "'attn run' takes jobs" : ""});
  TensorMap arrays;
  for (std::size_t i = 0; i < steps->size(); ++i)
    within(file.name(), [&] {
      within("step " + std::to_string(i + 1), [&] {
        const DrawStep step = parse_step((*steps)[i]);
        if (step.seed) {
          stream = make_stream(*step.seed, args.generator);
          return;
        }
        for (const auto& [name, tensor] : named_tensors(step, draw(step.spec, stream))) {
          if (arrays.contains(name))
            fail_data({.subject = "to", .message = "'" + printable(name) + "' is given twice"});
          arrays.set(name, tensor);
        }
      });
    });
  return arrays;
}

bool names_file(const std::string& method) { return method.ends_with(".json") || method == "-"; }

/// Errors: usage, for a flag that has no effect on the steps of a file.
void refuse_flags_with_file(const RandomArgs& args) {
  const auto refuse = [](const std::string& flag_name) {
    fail_usage(flag_name + ": not used with a list of steps");
  };
  for (const RandomArgument& argument : random_argument_table()) {
    const std::string name(argument.name);
    const auto on = args.booleans.find(name);
    const bool is_given =
        argument.kind == ArgumentKind::tensor
            ? !args.input.empty()
            : args.arguments.contains(name) || (on != args.booleans.end() && on->second);
    if (is_given) refuse(flag_of(argument));
  }
  if (args.repeat != 1) refuse("--repeat");
}

/// Errors: usage, for wrong arguments, otherwise for the missing seed. Draws with any seed, unless
/// that takes long.
[[noreturn]] void refuse_without_seed(const RandomArgs& args, TensorFiles& files) {
  constexpr std::size_t kFew = std::size_t{1} << 20;  // bytes
  if (!names_file(args.method)) {
    const Json spec = spec_of(args);
    std::optional<Tensor> values;
    if (!args.input.empty()) values = files.read(parse_tensor_ref(args.input));
    const Tensor* given = values ? &*values : nullptr;
    RandomStream stream = make_stream(Json{std::int64_t{0}}, args.generator);
    if (random_tensor_bytes(spec, given) <= kFew) draw(spec, stream, given);
  }
  fail_usage("--seed is required; see 'attn random --help'");
}

/// Errors: data, for a job whose inputs have no adversarial numbers in their own form.
void refuse_stored(const Job& job) {
  const auto refuse = [&](const std::string& what) {
    fail_data(
        {.where = {job.document.name}, .message = "no adversarial inputs for a job with " + what});
  };
  if (contains(job.replaced, Input::Q_nope) || job.document.find("value_width") != nullptr)
    refuse("values in the columns of keys");
  for (const Input input : {Input::Q, Input::K, Input::V})
    if (const Tensor* tensor = find(job.tensors, input); tensor != nullptr && tensor->rows())
      if (tensor->rows()->table()->is_stored()) refuse("quantised " + std::string(name_of(input)));
}

/// Writes keys or values to the slots of their pool.
void write_to_pool(const Tensor& values, const GatheredRows& rows, Tensor& pool) {
  const RowTable& table = *rows.table();
  visit(pool.dtype(), [&]<class T>(Type<T>) {
    const auto from = values.data<T>();
    const auto to = pool.mutable_data<T>();
    for (std::size_t row = 0; row < table.rows->size(); ++row)
      for (std::size_t g = 0; (*table.rows)[row] != RowTable::kZeros && g < table.heads; ++g) {
        const std::size_t item = row / table.keys, key = row % table.keys;
        const std::size_t place =
            rows.by_head() ? (item * table.heads + g) * table.keys + key : row * table.heads + g;
        const std::int64_t first =
            table.first + (*table.rows)[row] + static_cast<std::int64_t>(g) * table.head;
        std::copy_n(&from[place * table.width], table.width, &to[static_cast<std::size_t>(first)]);
      }
  });
}

/// The inputs of a job with pages: pools instead of K and V, and tables as given.
TensorMap in_pages(const Job& job, const TensorMap& inputs) {
  TensorMap all;
  for (const TensorMap* tensors : {&inputs, &job.replaced})
    for (const auto& [name, tensor] : *tensors)
      if (job.document.find(name) != nullptr) all.set(name, tensor);
  for (const auto& [input, pool] :
       {std::pair(Input::K, Input::K_pages), std::pair(Input::V, Input::V_pages)}) {
    const std::string name(name_of(contains(all, pool) ? pool : Input::KV_pages));
    Tensor changed = all.at(name);
    write_to_pool(at(inputs, input), *at(job.tensors, input).rows(), changed);
    all.set(name, changed);
  }
  return all;
}

/// Inputs of --kind adversarial. Errors: usage, without --for or with a method.
TensorMap adversarial(const RandomArgs& args, TensorFiles& files) {
  if (!args.method.empty()) fail_usage("--kind: not used with a method");
  if (args.job.empty()) fail_usage("--kind adversarial requires --for JOB");
  const std::string seed = args.seed.value_or("0");
  const std::optional<std::vector<std::uint32_t>> words = entropy_words(seed);
  if (!words || words->size() > 2)
    fail_usage("--seed: expected a whole number below 2^64 with --kind");
  Document document = read_document(args.job, files);
  check_values(document);
  const Job job = read_checked_job(std::move(document), files).job;
  refuse_stored(job);
  VisibleInputs visible = within(job.document.name, [&] {
    return visible_inputs({{job.tensors, job.options}}, usual_output(job), std::stoull(seed));
  });
  if (visible.hidden > 0)
    note("a test at rtol = atol = 1e-2 with these inputs sees " +
         std::to_string(visible.mistakes - visible.hidden) + " of " +
         counted(visible.mistakes, "mistake") + "; 'attn sensitivity' lists the others");
  TensorMap& inputs = visible.tensors;
  for (const std::string& name : job.transposed)  // by weights_layout, which remains in the job
    inputs.set(name, transposed_matrices(inputs.at(name)));
  return has_pages(job.replaced) ? in_pages(job, inputs) : inputs;
}

/// Errors: usage, for an unknown generator. The message suggests one that has the method.
void check_generator(const RandomArgs& args) {
  std::optional<Problem> problem = problem_with(*find_field("generator"), Json{args.generator});
  if (!problem) return;
  std::vector<std::string> able = generators_with(args.method);
  if (able.empty()) able = generator_names();
  if (!problem->found.empty())
    problem->found =
        "'" + printable(args.generator) + "'" + did_you_mean(args.generator, able, NameKind::value);
  problem->hint = "see 'attn random --help'";
  throw Error(ErrorKind::usage, *problem).within("--generator");
}

int run_random(const RandomArgs& args) {
  check_generator(args);
  if (!args.kind.empty() || !args.job.empty()) {
    if (args.kind.empty()) fail_usage("--for requires --kind adversarial");
    TensorFiles files(limits_of(args.limits));
    emit_tensors(adversarial(args, files), args.emit);
    return 0;
  }
  if (args.method.empty()) fail_usage("METHOD is required; see 'attn random --help'");
  if (names_file(args.method)) refuse_flags_with_file(args);
  TensorFiles files(reading_limits(args.limits, FileAccess::read));
  TensorMap arrays;
  try {
    if (!names_file(args.method)) require_method(args.generator, args.method);
    if (!args.seed) refuse_without_seed(args, files);
    const Json seed = value_from_flag(*find_field("seed"), *args.seed, "--seed");
    RandomStream stream = make_stream(seed, args.generator);
    if (names_file(args.method)) {
      emit_tensors(run_steps(args, stream, files), args.emit);
      return 0;
    }
    const Json spec = spec_of(args);
    std::optional<Tensor> values;
    if (!args.input.empty()) values = files.read(parse_tensor_ref(args.input));
    for (std::size_t i = 0; i < args.repeat; ++i) {
      const Tensor* given = values ? &*values : nullptr;
      const TensorMap drawn = draw(spec, stream, given);
      // NumPy shuffles in place: the next repetition shuffles this result.
      if (args.method == "shuffle") values = drawn.at("");
      const std::string prefix = args.repeat == 1 ? "" : "arr_" + std::to_string(i);
      for (const auto& [name, tensor] : drawn)
        arrays.set(prefix.empty() || name.empty() ? prefix + name : prefix + "." + name, tensor);
    }
  } catch (const Error& error) {
    // Without an input file, invalid data comes from the command line.
    const bool typed = error.kind() == ErrorKind::data && args.input.empty() &&
                       !names_file(args.method) && !files.budget().has_refused();
    throw Error(typed ? ErrorKind::usage : error.kind(), error.problems());
  }
  emit_tensors(arrays, args.emit);
  return 0;
}

Option option_of_argument(const RandomArgument& argument, RandomArgs& args) {
  const std::string flag_name = flag_of(argument), name(argument.name);
  switch (argument.kind) {
    case ArgumentKind::tensor:
      return text(flag_name, args.input, argument.placeholder, argument.help);
    case ArgumentKind::on:
    case ArgumentKind::off:
      return flag(flag_name, args.booleans[name], argument.help);
    default:
      const auto store = [&args, name](const std::string& value) { args.arguments[name] = value; };
      return text(flag_name, Store<std::string>(store), argument.placeholder, argument.help);
  }
}

std::vector<Option> argument_options(RandomArgs& args) {
  std::vector<Option> options;
  for (const RandomArgument& argument : random_argument_table()) {
    options.push_back(option_of_argument(argument, args));
    options.back().is_common = argument.is_common;
  }
  return options;
}

Option generator_option(RandomArgs& args) {
  const std::vector<std::string> names = generator_names();
  return common(suggesting(text("--generator", args.generator, "WORD", join_or(names)), names));
}

}  // namespace

Command random_command() {
  const auto args = std::make_shared<RandomArgs>();
  Command command;
  command.description =
      "Generates arrays with the random generators of NumPy, PyTorch, JAX and Python, bit for bit.";
  command.example =
      "  attn random randint --seed 42 --high 3 --shape 3,3 --repeat 3\n"
      "  attn random normal --seed 0 --loc 1 --scale 0.02 --shape 512,64 -o w.npy\n"
      "  attn random Linear --generator torch --seed 1 --in-features 3 --out-features 2";
  command.add(
      {or_file(suggesting(
           positional("METHOD", args->method,
                      "name of the method in its library (--help lists all), or a list of steps: "
                      "FILE.json, or - for standard input"),
           random_methods())),
       common(text(
           "--seed",
           Store<std::string>([args = args.get()](const std::string& seed) { args->seed = seed; }),
           "N[,M...]",
           "N means np.random.seed(N), torch.manual_seed(N) or jax.random.key(N); N,M means "
           "np.random.seed([N, M])")),
       generator_option(*args),
       common(integer("--repeat", args->repeat, {.min = 1}, "N",
                      "number of arrays to generate, one after another"))});
  command.add(in_group("Inputs of a job",
                       {word("--kind", args->kind, {"adversarial"},
                             "adversarial: generate inputs that expose mistakes (see 'attn "
                             "sensitivity'), instead of METHOD"),
                        text("--for", args->job, "JOB", "job file, whose inputs are replaced")}));
  command.add(in_group("Method arguments", argument_options(*args)));
  add_emit_options(command, args->emit);
  add_limit_options(command, args->limits);
  command.extra_hint = "the shape follows --shape, as in --shape 2,3";
  command.hints = {{{"--size"}, "use --shape"}};
  command.notes = "Methods and their arguments:\n" + random_methods_help();
  command.action = [args] { return run_random(*args); };
  return command;
}

}  // namespace attn
