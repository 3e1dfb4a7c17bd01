#include "attn/cli/exercise.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <vector>

#include "attn/attention/attention.h"
#include "attn/base/error.h"
#include "attn/cli/steps_text.h"
#include "attn/examples/new_numbers.h"
#include "attn/io/staged_file.h"
#include "attn/io/tensor_file.h"
#include "attn/job/document.h"
#include "attn/job/job.h"
#include "attn/problem/inputs.h"
#include "attn/random/generator.h"
#include "attn/run/output_target.h"

namespace attn {
namespace {

/// "a/sheet-solution.html" for "a/sheet.html".
std::string solution_of(const std::string& sheet) {
  const std::filesystem::path path(sheet);
  return (path.parent_path() / path.stem()).string() + "-solution" + path.extension().string();
}

bool has_equal_rows(const Tensor& scores) {
  const Tensor exact = cast(scores, DType::f64);
  const auto elements = exact.data<double>();
  const std::size_t columns = std::max<std::size_t>(1, exact.shape().back());
  std::set<std::vector<double>> rows;
  for (std::size_t at = 0; at + columns <= elements.size(); at += columns)
    if (!rows.emplace(elements.begin() + at, elements.begin() + at + columns).second) return true;
  return false;
}

}  // namespace

void write_exercise(const std::string& name, const std::string& job_file,
                    const ExerciseArgs& args) {
  if (args.sheet == "-" && args.solution.empty())
    fail_usage("-o -: the solution needs a name of its own; give --solution");
  const std::string solution = args.solution.empty() ? solution_of(args.sheet) : args.solution;
  if (args.sheet == "-" && solution == "-")
    fail_usage("--solution -: the sheet is written to standard output");
  const StepsFormat sheet_format = steps_format("-o", args.sheet),
                    solution_format = steps_format("--solution", solution);
  refuse_duplicates({{"-o", args.sheet}, {"--solution", solution}});
  const OutputPolicy policy{.force = args.force};
  OutputFile sheet_file(args.sheet, policy), solution_file(solution, policy);
  TensorFiles files;
  Job job = make_job(read_document(job_file, files), files);
  constexpr int kMostTries = 100;
  const TensorMap given = job.tensors;
  Generator generator(args.seed);
  TensorMap outputs;
  for (int tries = 0; tries < kMostTries; ++tries) {
    job.tensors = given;  // whose numbers set the range of the new ones
    if (!draw_new_numbers(job.tensors, generator))
      fail_usage("this job has no numbers that can change; choose another");
    outputs = attend(job, explained_outputs(job));
    if (!has_equal_rows(outputs.at(std::string(name_of(Output::scores))))) break;
  }
  const std::string of_example = std::to_string(args.seed) + " (" + name + ")";
  const Inputs in = make_inputs(job);
  WorkedSteps sheet = exercise(job, in, outputs, args.choice),
              steps = explain(job, in, outputs, args.choice);
  sheet.title = "Exercise " + of_example;
  steps.title = "Solution of exercise " + of_example;
  sheet_file.write(steps_text(sheet, sheet_format));
  solution_file.write(steps_text(steps, solution_format));
  sheet_file.finish();
  solution_file.finish();
  sheet_file.commit();
  solution_file.commit();
}

}  // namespace attn
