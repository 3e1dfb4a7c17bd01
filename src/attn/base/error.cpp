#include "attn/base/error.h"

#include "attn/base/text.h"

namespace attn {
namespace {

std::vector<std::string> render(const std::vector<Problem>& problems, std::size_t omitted) {
  std::vector<std::string> lines;
  for (const Problem& problem : problems) lines.push_back(to_string(problem));
  if (omitted > 0)
    lines.push_back("and " + std::to_string(omitted) +
                    (omitted == 1 ? " more error" : " more errors"));
  return lines;
}

std::size_t limit_problems(std::vector<Problem>& problems, std::size_t omitted) {
  if (problems.size() <= ProblemList::kMaxKept) return omitted;
  omitted += problems.size() - ProblemList::kMaxKept;
  problems.resize(ProblemList::kMaxKept);
  return omitted;
}

}  // namespace

std::string to_string(const Problem& problem) {
  std::string text;
  for (const std::string& each : problem.where)
    if (!each.empty()) text += printable(each) + ": ";
  if (problem.line > 0)
    text += "line " + std::to_string(problem.line) + (problem.column > 0 ? ", " : ": ");
  if (problem.column > 0) text += "column " + std::to_string(problem.column) + ": ";
  if (!problem.subject.empty()) text += printable(problem.subject) + ": ";
  if (problem.message.empty())
    text += "expected " + problem.expected + ", found " + problem.found;
  else
    text += problem.message;
  return problem.hint.empty() ? text : text + "; " + problem.hint;
}

Error::Error(ErrorKind kind, std::string message)
    : Error(kind, Problem{.message = std::move(message)}) {}

Error::Error(ErrorKind kind, Problem problem)
    : Error(kind, std::vector<Problem>{std::move(problem)}) {}

// what() is made from the problems, so they are limit_problems before the base class is.
Error::Error(ErrorKind kind, std::vector<Problem> problems, std::size_t omitted)
    : std::runtime_error(
          (omitted = limit_problems(problems, omitted), join(render(problems, omitted), "\n"))),
      kind_(kind),
      problems_(std::move(problems)),
      omitted_(omitted),
      lines_(render(problems_, omitted_)) {}

Error Error::within(const std::string& where) const {
  std::vector<Problem> problems = problems_;
  for (Problem& problem : problems)  // a memory charge for a file already names it
    if (problem.where.empty() || problem.where.front() != where)
      problem.where.insert(problem.where.begin(), where);
  return {kind_, std::move(problems), omitted_};
}

void fail_usage(Problem problem) { throw Error(ErrorKind::usage, std::move(problem)); }
void fail_data(Problem problem) { throw Error(ErrorKind::data, std::move(problem)); }

void ProblemList::add(Problem problem) {
  ++count_;
  if (kept_.size() < kMaxKept) kept_.push_back(std::move(problem));
}

void ProblemList::raise(ErrorKind kind) const { throw Error(kind, kept_, count_ - kept_.size()); }

}  // namespace attn
