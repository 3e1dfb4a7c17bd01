#include "attn/run/warnings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/float_arrays.h"
#include "attn/base/text.h"
#include "attn/cache/stored_rows.h"
#include "attn/problem/mask.h"
#include "attn/problem/output_table.h"
#include "attn/tensor/gathered_rows.h"

namespace attn {
namespace {

/// Counts the NaN among `values`, the first of which is element `from` of its tensor.
template <class T>
void count_nan(std::span<const T> values, std::size_t from, NanCount& found) {
  constexpr std::size_t kBlockSize = 4096;
  for (std::size_t start = 0; start < values.size(); start += kBlockSize) {
    const auto some = values.subspan(start, std::min(kBlockSize, values.size() - start));
    if (!any_nan(some)) continue;
    for (std::size_t i = 0; i < some.size(); ++i)
      if (std::isnan(static_cast<double>(some[i])) && found.count++ == 0)
        found.first = from + start + i;
  }
}

/// The same for infinite numbers of at least `least`.
template <class T>
void count_infinite(std::span<const T> values, double least, std::size_t from, NanCount& found) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    if (std::isinf(value) && value >= least && found.count++ == 0) found.first = from + i;
  }
}

/// Calls count(values, from, found) for floating-point numbers in memory.
template <class Count>
NanCount find_in(const RowBlock& block, const Count& count) {
  NanCount found;
  if (!is_float(block.dtype)) return found;
  visit(block.dtype, [&]<class T>(Type<T>) {
    if constexpr (!std::is_integral_v<T>) {
      const bool together = block.stride == block.columns * sizeof(T);
      const std::size_t step = together ? block.count : 1;
      for (std::size_t i = 0; i < block.count; i += step)
        count(std::span(reinterpret_cast<const T*>(block.row(i)), step * block.columns),
              (block.first + i) * block.columns, found);
    }
  });
  return found;
}

NanCount find_nan(const RowBlock& block) {
  if (!block.may_hold_nan) return {};
  return find_in(block, [](auto values, std::size_t from, NanCount& found) {
    count_nan(values, from, found);
  });
}

NanCount find_infinite(const RowBlock& block, double least) {
  return find_in(block, [least](auto values, std::size_t from, NanCount& found) {
    count_infinite(values, least, from, found);
  });
}

/// The NaN in the elements of the pool that the rows have, without those of `rest`; the first one
/// in the order of the keys.
NanCount find_nan(const RowTable& table) {
  NanCount found;
  visit(table.pool.dtype(), [&]<class T>(Type<T>) {
    if constexpr (!std::is_integral_v<T>)
      for_each_part(table, [&, pool = table.pool.data<T>()](std::size_t first, std::size_t width) {
        count_nan(pool.subspan(first, width), first, found);
      });
  });
  return found;
}

/// Whether hidden keys have no effect on the output.
bool is_after_mask(const Request& request) {
  const Output* output = std::get_if<Output>(&request);
  return is_of_gradients(request) || (output != nullptr && row_of(*output).phase == Phase::masked);
}

/// The shape of an output that was computed, whether it was streamed or not.
const Shape& shape_of(const Request& output, const Result& result) {
  const Tensor* tensor = result.outputs.find(name_of(output));
  return tensor ? tensor->shape() : result.streamed.at(std::get<Output>(output)).shape;
}

NanCount nan_of(const Request& output, const Result& result) {
  const Tensor* tensor = result.outputs.find(name_of(output));
  return tensor ? find_nan(rows_of(*tensor)) : result.streamed.at(std::get<Output>(output)).nan;
}

/// "Q.npy: Q", or "Q" for a tensor that did not come from a file or flag.
std::string with_origin(const Job& job, const std::string& name) {
  const std::string& origin = job.origins.at(name);
  return origin.empty() ? name : printable(origin) + ": " + name;
}

/// "; Q.npy: Q holds 1 infinite number, the first at [0, 1]" for each input on which the output
/// depends, if it has some. Biases and sinks of -inf only hide keys.
std::string given_infinite(const Job& job, const Request& output) {
  constexpr std::array kOfContext = {Output::context, Output::head_context, Output::output};
  const bool reads_values =
      is_of_gradients(output) || std::any_of(kOfContext.begin(), kOfContext.end(),
                                             [&](Output each) { return output == Request{each}; });
  std::string text;
  for (const auto& [name, tensor] : job.tensors) {
    const auto input = input_named(name);
    if (!input || tensor.rows() != nullptr || (row_of(*input).is_of_values && !reads_values))
      continue;
    const bool hides = *input == Input::sinks || std::find(kBiasInputs.begin(), kBiasInputs.end(),
                                                           *input) != kBiasInputs.end();
    const NanCount found = find_infinite(rows_of(tensor), hides ? 0 : -HUGE_VAL);
    if (found.count > 0)
      text += "; " + with_origin(job, name) + " holds " + counted(found.count, "infinite number") +
              ", the first at " + index_text(found.first, tensor.shape());
  }
  return text;
}

/// "; Q.npy: Q holds 2, the first at [0, 1]" for each input with NaN.
std::string given_nan(const Job& job) {
  std::string text;
  const auto describe = [&](const std::string& name, const Shape& shape, const NanCount& in) {
    if (in.count == 0) return false;
    text += "; " + with_origin(job, name) + " holds " + std::to_string(in.count) +
            ", the first at " + index_text(in.first, shape);
    return true;
  };
  // The place is that in the tensor as given, whose elements are the pool.
  const auto describe_part = [&](const std::string& name, const RowTable& part) {
    const auto is_given = [&](const Tensor& tensor) {
      return tensor.rows() == nullptr && tensor.raw() == part.pool.raw();
    };
    const Tensor* own = job.replaced.find(name);
    if (own != nullptr && is_given(*own)) return describe(name, own->shape(), find_nan(part));
    for (const auto& [given, tensor] : job.replaced)
      if (is_given(tensor)) return describe(given, tensor.shape(), find_nan(part));
    return describe(name, part.pool.shape(), find_nan(part));
  };
  std::set<std::string_view> scaled;  // by a NaN, which is their cause
  for (const auto& [name, tensor] : job.replaced) {
    const auto input = input_named(name);
    const Storage* storage = input ? storage_described_by(*input) : nullptr;
    if (storage != nullptr && is_float(tensor.dtype()) &&
        describe(name, tensor.shape(), find_nan(rows_of(tensor))))
      scaled.insert(name_of(storage->of));
  }
  for (const auto& [name, tensor] : job.tensors) {
    const GatheredRows* rows = tensor.rows();
    if (scaled.contains(name)) continue;
    if (rows == nullptr || rows->table()->is_stored())
      describe(name, tensor.shape(), find_nan(rows_of(tensor)));
    else
      for (const RowTable* part = rows->table().get(); part != nullptr; part = part->rest.get())
        describe_part(name, *part);
  }
  return text;
}

}  // namespace

void NanCounter::add(const RowBlock& block) {
  const NanCount in = find_nan(block);
  if (in.count == 0) return;
  const std::lock_guard lock(mutex_);
  found_.first = found_.count == 0 ? in.first : std::min(found_.first, in.first);
  found_.count += in.count;
}

bool is_checked_for_nan(const Request& request, const std::vector<Request>& outputs) {
  return is_after_mask(request) || std::none_of(outputs.begin(), outputs.end(), is_after_mask);
}

std::string nan_warning(const Job& job, const Result& result, const std::vector<Request>& outputs,
                        NanPolicy policy) {
  if (policy == NanPolicy::allow) return "";
  for (const Request& output : outputs) {
    if (!is_checked_for_nan(output, outputs)) continue;
    const NanCount nan = nan_of(output, result);
    if (nan.count == 0) continue;
    const Shape& shape = shape_of(output, result);
    const std::size_t count = element_count(shape);
    const std::string found = nan.count == count && count > 1
                                  ? "all " + std::to_string(count) + " values are NaN"
                                  : std::to_string(nan.count) + " of " + std::to_string(count) +
                                        " values are NaN, the first at " +
                                        index_text(nan.first, shape);
    const std::string given = given_nan(job);
    const std::string line = std::string(name_of(output)) + ": " + found +
                             (given.empty() ? given_infinite(job, output) : given);
    if (policy == NanPolicy::refuse) fail_data(line);
    return line;
  }
  return "";
}

namespace {

bool all_zero_or_one(const Tensor& tensor) {
  const Tensor values = cast(tensor, DType::f64);
  const auto data = values.data<double>();
  const bool some_one = std::find(data.begin(), data.end(), 1.0) != data.end();
  return some_one &&
         std::all_of(data.begin(), data.end(), [](double x) { return x == 0 || x == 1; });
}

std::string warn_overflow(const Inputs& in, const Result& result,
                          const std::vector<Request>& outputs) {
  std::vector<std::string> texts;
  for (const Request& request : outputs) {
    const Output* output = std::get_if<Output>(&request);
    const auto overflow = output ? result.overflows.find(*output) : result.overflows.end();
    if (overflow == result.overflows.end()) continue;
    texts.push_back(std::string(name_of(request)) + ": " + std::to_string(overflow->second) +
                    " of " + std::to_string(element_count(shape_of(request, result))) + " values");
  }
  if (texts.empty()) return "";
  return join(texts, ", ") + " overflowed " + std::string(name_of(in.result)) +
         " and became inf; compute f32 avoids this";
}

std::string warn_float_mask(const Job& job) {
  for (const Input input : {Input::mask, Input::key_mask}) {
    const Tensor* mask = find(job.tensors, input);
    if (mask == nullptr || !is_float(mask->dtype()) || !all_zero_or_one(*mask)) continue;
    return with_origin(job, std::string(name_of(input))) +
           ": floats are added to the scores, so 0 and 1 hide nothing; use booleans or "
           "integers to mark the visible keys";
  }
  return "";
}

/// A boolean key mask that hides all keys of a batch item.
std::string warn_key_polarity(const Job& job) {
  const Tensor* mask = find(job.tensors, Input::key_mask);
  if (job.mask_polarity_given || mask == nullptr || mask->dtype() != DType::boolean ||
      mask->rank() != 2 || mask->size() == 0)
    return "";
  const bool visible = job.options.mask_polarity == MaskPolarity::attend;
  const std::size_t S = mask->shape()[1];
  const bool* row = mask->data<bool>().data();
  for (std::size_t item = 0; item < mask->shape()[0]; ++item, row += S)
    if (std::find(row, row + S, visible) == row + S)
      return with_origin(job, std::string(name_of(Input::key_mask))) +
             ": hides all keys of batch item " + std::to_string(item) +
             (visible
                  ? "; if true hides a key, as in key_padding_mask, set mask_polarity to ignore "
                    "(--mask-polarity ignore)"
                  : "; if true shows a key, set mask_polarity to attend (--mask-polarity attend)");
  return "";
}

/// Stored integers that look like codes, or like numbers whose scale was forgotten: unsigned ones
/// with a scale and without a zero point, which no quantisation makes, and keys and values of 8
/// bits with neither. Wider integers, such as those of JSON, may be meant as they are.
std::string warn_codes(const Job& job) {
  struct Part {
    Input given;
    const Storage& storage;
    bool is_rest = false;  ///< whether it has the last columns of K
  };
  const Storage &of_q = storage_of(Input::Q), &of_k = storage_of(Input::K),
                &of_v = storage_of(Input::V);
  for (const auto& [given, storage, is_rest] :
       {Part{Input::Q, of_q}, Part{Input::K, of_k}, Part{Input::V, of_v},
        Part{Input::K_pages, of_k}, Part{Input::V_pages, of_v}, Part{Input::KV_pages, of_k},
        Part{Input::KV_pages, of_v}, Part{Input::CKV, of_k}, Part{Input::CKV_pages, of_k},
        Part{Input::K_pe, kRotaryStorage, true}, Part{Input::K_pe_pages, kRotaryStorage, true}}) {
    const Tensor* stored = find(job.replaced, given);
    if (stored == nullptr) stored = find(job.tensors, given);
    if (stored == nullptr || stored->rows() != nullptr ||
        (stored->dtype() != DType::u8 && stored->dtype() != DType::i8))
      continue;
    const GatheredRows* rows = at(job.tensors, is_rest ? Input::K : storage.of).rows();
    const RowTable* table = rows == nullptr ? nullptr : rows->table().get();
    if (is_rest && table != nullptr) table = table->rest.get();
    if (table != nullptr && table->code != Code::none) continue;
    const std::string what = with_origin(job, std::string(name_of(given))) + ": " +
                             std::string(name_of(stored->dtype()));
    if (table == nullptr || !table->factors) {
      const Tensor* queries = find(job.tensors, Input::Q);
      const bool are_floats = queries != nullptr && is_float(queries->dtype());
      if (storage.of != Input::Q && are_floats)
        return what + " elements without a scale are used as integers; give " +
               std::string(name_of(storage.scale)) + " (1 if this is right)";
    } else if (stored->dtype() == DType::u8 && contains(job.replaced, storage.scale) &&
               !(storage.zero_point && contains(job.replaced, *storage.zero_point))) {
      return what + " elements are integers; if they are codes of 8-bit floats, give their type, " +
             "such as " + std::string(storage.type_key) + " e4m3";
    }
  }
  return "";
}

/// An integer mask that hides all keys.
std::string warn_hiding_mask(const Job& job) {
  for (const Input input : {Input::mask, Input::key_mask}) {
    const Tensor* mask = find(job.tensors, input);
    if (mask == nullptr || mask->size() == 0 || is_float(mask->dtype()) ||
        mask->dtype() == DType::boolean)
      continue;
    const std::int64_t hidden = job.options.mask_polarity == MaskPolarity::ignore ? 1 : 0;
    const Tensor values = cast(*mask, DType::i64);
    const auto data = values.data<std::int64_t>();
    if (!std::all_of(data.begin(), data.end(), [&](std::int64_t x) { return x == hidden; }))
      continue;
    return with_origin(job, std::string(name_of(input))) + ": all elements are the integer " +
           std::to_string(hidden) + ", which hides every key; use floats for an additive mask";
  }
  return "";
}

/// The first query of a square matrix of visible keys that sees none, though another query sees the
/// key at its position; nullopt if there is none.
std::optional<std::size_t> find_blind_query(const bool* mask, std::size_t length, bool visible) {
  std::vector<std::size_t> blind;
  for (std::size_t i = 0; i < length; ++i) {
    const bool* const row = mask + i * length;
    if (std::find(row, row + length, visible) == row + length) blind.push_back(i);
  }
  for (std::size_t other = 0; other < length && !blind.empty(); ++other)
    for (const std::size_t i : blind)
      if (mask[other * length + i] == visible) return i;
  return std::nullopt;
}

bool is_above_diagonal(const bool* mask, std::size_t length, bool visible) {
  for (std::size_t i = 0; i < length; ++i) {
    const bool* const row = mask + i * length;
    if (std::find(row, row + i + 1, visible) != row + i + 1) return false;
  }
  return true;
}

std::string warn_mask_polarity(const Job& job) {
  const Tensor* given = find(job.tensors, Input::mask);
  if (job.mask_polarity_given || given == nullptr || is_float(given->dtype()) || given->rank() < 2)
    return "";
  const std::size_t length = given->shape().back();
  if (given->shape()[given->rank() - 2] != length || given->size() == 0) return "";
  const bool visible = job.options.mask_polarity == MaskPolarity::attend;
  const Tensor mask = cast(*given, DType::boolean);
  for (const bool *matrix = mask.data<bool>().data(), *end = matrix + mask.size(); matrix != end;
       matrix += length * length) {
    const auto blind = find_blind_query(matrix, length, visible);
    if (!blind) continue;
    const std::string query = std::to_string(*blind);
    return with_origin(job, std::string(name_of(Input::mask))) + ": " +
           (is_above_diagonal(matrix, length, visible)
                ? "each query sees later keys only"
                : "query " + query + " sees no key, but other queries see key " + query) +
           (visible
                ? "; if true hides a key, as in nn.MultiheadAttention, set mask_polarity to "
                  "ignore (--mask-polarity ignore)"
                : "; if true shows a key, set mask_polarity to attend (--mask-polarity attend)");
  }
  return "";
}

std::string warn_layout(const Job& job, const Inputs& in) {
  const Tensor* Q = find(job.tensors, Input::Q);
  if (Q == nullptr || Q->rank() != 4 || job.layout_given || in.L <= 1 || in.H <= in.L ||
      in.G <= in.P + in.N)
    return "";
  return with_origin(job, std::string(name_of(Input::Q))) + " " + to_string(Q->shape()) + ": " +
         counted(in.H, "head") + " of " + std::to_string(in.L) +
         " queries; if the axes are (B, L, H, D), set layout to blhd (--layout blhd), otherwise to "
         "bhld";
}

std::string warn_alignment(const Job& job, const Inputs& in) {
  if (!job.options.causal || job.alignment_given || in.L == in.N || in.L == 0 || in.N == 0)
    return "";
  return "causal: " + (in.L == 1 ? "1 query" : std::to_string(in.L) + " queries") + " and " +
         counted(in.N, "key") +
         ": the first query is aligned with the first key (top-left); --causal=bottom-right aligns "
         "the last query with the last key";
}

bool needs_values(const Request& request) {
  const Output* found = std::get_if<Output>(&request);
  return found != nullptr && OutputSet{Output::values, Output::present_V, Output::head_context,
                                       Output::context, Output::output}
                                 .contains(*found);
}

std::string warn_missing_values(const Job& job, const std::vector<Request>& outputs) {
  if (job.values_given || !contains(job.tensors, Input::K) ||
      std::none_of(outputs.begin(), outputs.end(), needs_values))
    return "";
  return "V: missing, so the keys are also the values; if this is intended, say so with \"V\": "
         "\"K\" or --v K";
}

std::string warn_missing_gradients(const Job& job, const std::vector<Request>& outputs) {
  const auto seed = std::find_if(kSeeds.begin(), kSeeds.end(),
                                 [&](const Seed& one) { return contains(job.tensors, one.input); });
  const bool has_output = contains(job.tensors, Input::W_O) || contains(job.tensors, Input::W_UV);
  if (seed == kSeeds.end() || job.document.find("outputs") != nullptr ||
      outputs != default_outputs(has_output))
    return "";
  const std::vector<Request> gradients = available_gradients(job);
  if (gradients.empty()) return "";
  return std::string(name_of(seed->input)) +
         ": has an effect only on gradients; request them with --outputs " +
         std::string(name_of(gradients.front())) + ",...";
}

std::string warn_weights_layout(const Job& job) {
  if (job.ambiguous_weights.empty()) return "";
  return with_origin(job, job.ambiguous_weights.front()) +
         ": a square matrix, used as (in, out), but torch.nn.Linear saves (out, in); set "
         "weights_layout to out-in to transpose it, or to in-out if this is right";
}

std::string warn_tables(const Job& job) {
  if (job.unused_tables.empty()) return "";
  return with_origin(job, job.unused_tables.front()) +
         ": neither mask_rule nor bias_rule has this table";
}

std::string warn_token_count(const Job& job, const Inputs& in) {
  const std::size_t keys = in.P + in.N;  // without the keys that are appended for every query
  if (const std::size_t count = job.key_tokens.size(); count != 0 && count != keys)
    return "key_tokens: expected as many as the " + std::to_string(keys) + " keys, found " +
           std::to_string(count) + "; labels are ignored";
  const std::size_t count = job.tokens.size();
  if (count == 0 || count == in.L || count == keys || count == in.N) return "";
  const std::string others = keys == in.L ? "" : " or the " + std::to_string(keys) + " keys";
  return "tokens: expected as many as the " + std::to_string(in.L) + " queries" + others +
         ", found " + std::to_string(count) + "; labels are ignored";
}

}  // namespace

std::vector<std::string> warnings_of(const Job& job, const Inputs& in, const Result& result,
                                     const std::vector<Request>& outputs, NanPolicy nan) {
  std::vector<std::string> warnings;
  for (std::string& warning : std::array<std::string, 15>{
           nan_warning(job, result, outputs, nan), warn_overflow(in, result, outputs),
           job.hidden_warning, warn_float_mask(job), warn_hiding_mask(job), warn_codes(job),
           warn_mask_polarity(job), warn_key_polarity(job), warn_layout(job, in),
           warn_weights_layout(job), warn_missing_values(job, outputs),
           warn_missing_gradients(job, outputs), warn_alignment(job, in), warn_tables(job),
           warn_token_count(job, in)})
    if (!warning.empty()) warnings.push_back(std::move(warning));
  return warnings;
}

}  // namespace attn
