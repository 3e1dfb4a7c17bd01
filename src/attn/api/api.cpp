#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "attn/api/input_tensor.h"
#include "attn/api/settings.h"
#include "attn/attn.h"
#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/base/version.h"
#include "attn/compare/compare_reference.h"
#include "attn/compare/comparison_report.h"
#include "attn/io/tensor_file.h"
#include "attn/job/document.h"
#include "attn/job/job.h"
#include "attn/model/model_job.h"
#include "attn/problem/threads.h"
#include "attn/run/execution.h"
#include "attn/run/memory_estimate.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// An output, which owns what the members of attn_tensor point to.
struct OutputTensor : attn_tensor {
  OutputTensor(std::string its_name, Tensor its_tensor)
      : attn_tensor{}, name_text(std::move(its_name)), tensor(std::move(its_tensor)) {}

  /// Copies the elements if another tensor shares them.
  void own_elements() {
    data = tensor.mutable_raw();
    name = name_text.c_str();
    dtype = name_of(tensor.dtype()).data();  // of a literal, so it ends with a NUL
    rank = tensor.rank();
    shape = tensor.shape().begin();
  }

  std::string name_text;
  Tensor tensor;
};

}  // namespace attn

struct attn_result {
  int code = 0;
  std::string text, warnings, json;
  std::size_t copied = 0;
  std::vector<std::unique_ptr<attn::OutputTensor>> outputs;
  std::size_t taken = 0;  ///< of the outputs, the first ones
};

namespace attn {
namespace {

std::string joined_lines(const std::vector<std::string>& messages) {
  return join(messages, "\n", printable_message);
}

TensorMap tensors_of(const attn_tensor* tensors, std::size_t count, ReadBudget& budget,
                     std::size_t& copied) {
  if (tensors == nullptr && count > 0)
    fail_usage("expected " + counted(count, "tensor") + ", found NULL");
  TensorMap map;
  for (std::size_t i = 0; i < count; ++i) {
    if (tensors[i].name == nullptr) fail_usage("tensor " + std::to_string(i) + " has no name");
    if (map.contains(tensors[i].name))
      fail_usage("tensor " + printable(tensors[i].name) + " is given twice");
    map.set(tensors[i].name, input_tensor(tensors[i], budget, copied));
  }
  return map;
}

Document document_of(const char* job, const TensorMap& tensors, ReadBudget& budget) {
  Document document;
  if (job != nullptr) document = parse_document(job, "", "", &budget);
  add_tensors(document, tensors, budget);
  return document;
}

/// Gives each output elements of its own: outputs can share them with inputs and with each other.
void take_outputs(TensorMap outputs, attn_result& result) {
  result.outputs.reserve(outputs.size());
  for (const auto& [name, tensor] : outputs)
    result.outputs.push_back(std::make_unique<OutputTensor>(name, tensor));
  outputs = {};
  for (const auto& output : result.outputs) output->own_elements();
}

void run_job(const char* job_text, const attn_tensor* tensors, std::size_t count,
             const char* settings_text, attn_result& result) {
  const RunSettings settings = run_settings(settings_text);
  TensorFiles files(settings.limits);
  auto [job, prepared] = read_checked_job(
      document_of(job_text, tensors_of(tensors, count, files.budget(), result.copied),
                  files.budget()),
      files);
  MemoryEstimate(prepared.plan)
      .require("", settings.limits.memory, "", MemoryEstimate::Spelling::keys);
  set_threads(settings.threads);
  Execution execution = execute({job, prepared, nullptr, job.outputs, settings.nan});
  result.warnings = joined_lines(execution.warnings);
  take_outputs(std::move(execution.result.outputs), result);
}

void compare_outputs(const attn_tensor* given, std::size_t given_count, const char* job,
                     const attn_tensor* tensors, std::size_t count, const char* settings_text,
                     attn_result& result) {
  CompareSettings settings = compare_settings(settings_text);
  TensorFiles files(settings.limits);
  const TensorMap outputs = tensors_of(given, given_count, files.budget(), result.copied);
  if (outputs.empty()) fail_usage("expected a tensor to compare, found none");
  settings.reference.origin_of_as = "";
  for (const auto& [name, tensor] : outputs)
    if (!name.empty()) settings.reference.as.push_back(name);
  const CompareReport report = compare_to_reference(
      outputs,
      document_of(job, tensors_of(tensors, count, files.budget(), result.copied), files.budget()),
      settings.reference, files);
  result.warnings = joined_lines(report.notes);
  result.text = report_text(report);
  result.json = report_json(report);
  result.code = report.same() ? 0 : 1;
}

void fail(attn_result& result, int code, std::string text) {
  result.outputs.clear();
  result.code = code;
  result.text = std::move(text);
}

/// The result of act(result); what it throws becomes the result's error. nullptr, if there is no
/// memory for that either.
template <class Act>
attn_result* result_of(const Act& act) noexcept {
  try {
    auto result = std::make_unique<attn_result>();
    try {
      act(*result);
    } catch (const Error& error) {
      fail(*result, static_cast<int>(error.kind()), joined_lines(error.lines()));
    } catch (const std::bad_alloc& fault) {
      fail(*result, static_cast<int>(ErrorKind::data), message_of(fault));
    } catch (const std::length_error&) {  // more elements than a container can have
      fail(*result, static_cast<int>(ErrorKind::data), message_of(std::bad_alloc()));
    } catch (const std::exception& error) {
      fail(*result, static_cast<int>(ErrorKind::internal),
           std::string("internal error: ") + error.what());
    }
    return result.release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace
}  // namespace attn

extern "C" {

const char* attn_version() { return attn::kVersion; }

attn_result* attn_run(const char* job, const attn_tensor* tensors, size_t count,
                      const char* settings) {
  return attn::result_of(
      [&](attn_result& result) { attn::run_job(job, tensors, count, settings, result); });
}

attn_result* attn_compare(const attn_tensor* given, size_t given_count, const char* job,
                          const attn_tensor* tensors, size_t count, const char* settings) {
  return attn::result_of([&](attn_result& result) {
    attn::compare_outputs(given, given_count, job, tensors, count, settings, result);
  });
}

int attn_result_code(const attn_result* result) { return result->code; }
const char* attn_result_text(const attn_result* result) { return result->text.c_str(); }
const char* attn_result_warnings(const attn_result* result) { return result->warnings.c_str(); }
const char* attn_result_json(const attn_result* result) { return result->json.c_str(); }
size_t attn_result_copied(const attn_result* result) { return result->copied; }
size_t attn_result_count(const attn_result* result) {
  return result->outputs.size() - result->taken;
}

const attn_tensor* attn_result_output(const attn_result* result, size_t index) {
  return index < attn_result_count(result) ? result->outputs[result->taken + index].get() : nullptr;
}

attn_tensor* attn_result_take(attn_result* result) {
  if (attn_result_count(result) == 0) return nullptr;
  return result->outputs[result->taken++].release();
}

void attn_result_free(attn_result* result) { delete result; }

void attn_tensor_free(attn_tensor* tensor) { delete static_cast<attn::OutputTensor*>(tensor); }

}  // extern "C"
