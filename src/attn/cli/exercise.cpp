#include "attn/cli/exercise.h"

#include <filesystem>
#include <utility>

#include "attn/base/error.h"
#include "attn/cli/steps_text.h"
#include "attn/core/attention.h"
#include "attn/examples/new_numbers.h"
#include "attn/io/output_path.h"
#include "attn/io/staged_file.h"
#include "attn/io/tensor_file.h"
#include "attn/job/document.h"
#include "attn/job/job.h"

namespace attn {
namespace {

/// "a/sheet-solution.html" for "a/sheet.html".
std::string solution_of(const std::string& sheet) {
  const std::filesystem::path path(sheet);
  return (path.parent_path() / path.stem()).string() + "-solution" + path.extension().string();
}

}  // namespace

void write_exercise(const std::string& job_file, const ExerciseArgs& args) {
  if (args.sheet == "-" && args.solution.empty())
    throw Error(ErrorKind::usage, "-o -: the solution needs a name of its own; give --solution");
  const std::string solution = args.solution.empty() ? solution_of(args.sheet) : args.solution;
  const StepsFormat sheet_format = steps_format("-o", args.sheet),
                    solution_format = steps_format("--solution", solution);
  refuse_duplicates({{"-o", args.sheet}, {"--solution", solution}});
  const OutputPolicy policy{.force = args.force};
  OutputFile sheet_file(args.sheet, policy), solution_file(solution, policy);
  TensorFiles files;
  const Document document = read_document(job_file, files);
  Job job = make_job(document, files);
  draw_new_numbers(job.tensors, args.seed);
  const TensorMap outputs = attend(job.tensors, job.options, explained_outputs(job));
  const std::string number = std::to_string(args.seed);
  WorkedSteps sheet = exercise(job, outputs, args.choice),
              steps = explain(job, outputs, args.choice);
  sheet.title = "Exercise " + number + ": attention, step by step";
  steps.title = "Solution of exercise " + number + ": attention, step by step";
  sheet_file.write(steps_text(sheet, sheet_format));
  solution_file.write(steps_text(steps, solution_format));
  sheet_file.finish();
  solution_file.finish();
  sheet_file.commit();
  solution_file.commit();
}

}  // namespace attn
