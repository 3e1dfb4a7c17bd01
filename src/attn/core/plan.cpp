#include "attn/core/plan.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "attn/base/error.h"
#include "attn/base/same_name.h"
#include "attn/core/attention.h"
#include "attn/core/fast.h"
#include "attn/core/inputs.h"
#include "attn/core/kernel_problem.h"

namespace attn {
namespace {

constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();

double real_product(const Shape& factors) {
  double result = 1;
  for (const std::size_t factor : factors) result *= static_cast<double>(factor);
  return result;
}

constexpr std::size_t kNone = kOutputNames.size();

/// The place of a stage among kOutputNames; kNone for what is none.
constexpr std::size_t place_of(std::string_view name) {
  std::size_t place = 0;
  while (place < kNone && !same_name(name, kOutputNames[place].name)) ++place;
  return place;
}

/// Some of the stages, a bit each.
using StageSet = std::uint32_t;
static_assert(kNone <= 32);

/// A stage by its name, which is looked up when this is compiled.
struct StageName {
  consteval StageName(const char* name) : place(place_of(name)) {}
  explicit constexpr StageName(std::size_t at) : place(at) {}
  std::size_t place;
};
constexpr StageSet only(StageName stage) { return StageSet{1} << stage.place; }

struct Stage {
  Shape shape;         ///< with the full letters
  bool whole = false;  ///< of integers
  double flops = 0;
  bool has_heads = false;
  StageSet needs = 0;
};

/// The stages of one problem, as attention.cpp computes them.
class StageTable {
 public:
  StageTable(const TensorMap& tensors, const Inputs& in, const Options& options)
      : tensors_(tensors),
        in_(in),
        rows_(in.rows.size()),
        makes_floats_(options.qk_norm != QkNorm::none ||
                      options.rotary.kind != Rotary::Kind::none) {
    add_sources(options);
    add_scores(options);
    add_contexts(options);
  }

  const Stage& at(StageName stage) const { return stages_[stage.place]; }

  /// Whether the kernels are handed this problem: then no stage is kept that is not an output.
  bool all_floats(StageSet needed) const {
    constexpr StageSet kFactors = only("queries") | only("present_K") | only("present_V");
    for (std::size_t place = 0; place < kNone; ++place)
      if (needed & kFactors & only(StageName(place)) && at(StageName(place)).whole) return false;
    return true;
  }

  /// The stage, what it needs, what that needs, ...
  StageSet with_needs(StageSet stages) const {
    for (std::size_t place = kNone; place-- > 0;)  // a stage needs only some before it
      if (stages & only(StageName(place))) stages |= stages_[place].needs;
    return stages;
  }

  std::size_t bytes_of(StageName name) const {
    const Stage& stage = at(name);
    const std::size_t extra = name.place == StageName("masked_scores").place;  // what is visible
    return product({product(stage.shape), size_of(stage.whole ? DType::i64 : in_.compute) + extra});
  }

 private:
  bool whole(std::string_view name) const {
    const Tensor* tensor = tensors_.find(name);
    return tensor == nullptr || !is_float(tensor->dtype());
  }

  /// queries, keys or values: x W + b with x of (B, N, M), or as given.
  void add_projection(StageName name, const std::string& letter, const Shape& shape,
                      std::size_t width, bool whole_source, StageSet needs) {
    Stage stage{.shape = shape, .has_heads = true};
    if (!in_.projected) {
      const std::string given = letter == "V" && !tensors_.contains("V") ? "K" : letter;
      stage.whole = whole(given);
    } else {
      stage.whole = whole_source && whole("W_" + letter) && whole("b_" + letter);
      stage.flops = tensors_.contains("W_" + letter) ? 2 * real_product(shape) * double(width) : 0;
      stage.needs = needs;
    }
    if (letter != "V" && makes_floats_) stage.whole = false;
    set(name, stage);
  }

  /// The past before the new ones; without a past no copy is made.
  void add_present(StageName name, StageName from, std::string_view past, const Shape& shape) {
    set(name, {.shape = shape,
               .whole = at(from).whole && whole(past),
               .has_heads = true,
               .needs = only(from)});
  }

  /// Of a key, which some score functions compare with queries of another width.
  std::size_t key_width(std::size_t Mk) const {
    if (!in_.projected) return in_.K.shape()[3];
    return (in_.W_K ? in_.W_K->shape()[1] : Mk) / in_.G;
  }

  void add_sources(const Options& options) {
    const bool positions = options.position.kind != Position::Kind::none;
    const bool scaled =
        options.position.embedding_scale != 1 || options.position.embedding_scale_sqrt;
    const std::size_t M = in_.projected ? in_.embeddings.shape()[2] : 0;
    const std::size_t Mk = in_.memory ? in_.memory->shape()[2] : M;
    const bool whole_inputs = whole("embeddings") && !positions && !scaled;
    if (in_.projected) {
      set("positions", {.shape = {rows_, M}, .flops = real_product({in_.L, M})});
      set("inputs", {.shape = {in_.B, rows_, M},
                     .whole = whole_inputs,
                     .flops = positions || scaled ? real_product({in_.B, in_.L, M}) : 0});
    }
    add_projection("queries", "Q", {in_.B, in_.H, rows_, in_.D}, M, whole_inputs, only("inputs"));
    const bool whole_memory = in_.memory ? whole("memory") : whole_inputs;
    const StageSet source = in_.memory ? 0 : only("inputs");
    const std::size_t width = key_width(Mk);
    add_projection("keys", "K", {in_.B, in_.G, in_.N, width}, Mk, whole_memory, source);
    add_projection("values", "V", {in_.B, in_.G, in_.N, in_.Dv}, Mk, whole_memory, source);
    add_present("present_K", "keys", "past_K", {in_.B, in_.G, in_.P + in_.N, width});
    add_present("present_V", "values", "past_V", {in_.B, in_.G, in_.P + in_.N, in_.Dv});
  }

  void add_scores(const Options& options) {
    const Shape shape = {in_.B, in_.H, rows_, in_.S};
    const double count = real_product(shape);
    const auto add = [&](StageName name, double each, StageSet needs, bool whole) {
      set(name, {.shape = shape,
                 .whole = whole,
                 .flops = each * count,
                 .has_heads = true,
                 .needs = needs});
    };
    add("scores", 2 * static_cast<double>(in_.D), only("queries") | only("present_K"),
        options.score == Score::dot && at("queries").whole && at("present_K").whole);
    add("scaled_scores", 1, only("scores"), false);
    add("masked_scores", 1, only("scaled_scores"), false);
    add("weights", 4, only("masked_scores"), false);
    const auto summary = [&](StageName name, const Shape& sizes, bool has_heads) {
      set(name, {.shape = sizes, .flops = count, .has_heads = has_heads, .needs = only("weights")});
    };
    summary("row_max", {in_.B, in_.H, rows_}, true);
    summary("logsumexp", {in_.B, in_.H, rows_}, true);
    summary("mean_weights", {in_.B, rows_, in_.S}, false);
    summary("key_weights", {in_.B, in_.H, in_.S}, true);
  }

  void add_contexts(const Options& options) {
    const Shape heads = {in_.B, in_.H, rows_, in_.Dv};
    set("head_context", {.shape = heads,
                         .flops = 2 * real_product(heads) * static_cast<double>(in_.S),
                         .has_heads = true,
                         .needs = only("weights") | only("present_V")});
    const std::size_t width = in_.H * in_.Dv;
    Stage context{.shape = {in_.B, rows_, width}, .needs = only("head_context")};
    if (!in_.packed)
      context.shape = options.layout == Layout::bhld ? heads : Shape{in_.B, rows_, in_.H, in_.Dv};
    set("context", context);
    if (!in_.W_O) return;
    const Shape output = {in_.B, rows_, in_.W_O->shape()[1]};
    set("output", {.shape = output,
                   .flops = 2 * real_product(output) * static_cast<double>(width),
                   .needs = only("context")});
  }

  void set(StageName name, Stage stage) {
    if (stage.needs >= only(name))
      throw Error(ErrorKind::internal, "kOutputNames: a stage before one that it needs");
    stages_[name.place] = std::move(stage);
  }

  const TensorMap& tensors_;
  const Inputs& in_;
  const std::size_t rows_;
  const bool makes_floats_;          ///< of queries and keys, by what is done to them
  std::array<Stage, kNone> stages_;  ///< in the places of kOutputNames
};

PlannedOutput planned(const std::string& name, const TensorMap& tensors, const StageTable& stages,
                      const Inputs& in) {
  const std::size_t heads = name == "W_Q_heads" ? in.H : in.G;
  if (const Tensor* tensor = tensors.find(name))
    return {name, tensor->shape(), tensor->dtype(), tensor->bytes()};
  if (name.ends_with("_heads")) {
    const Tensor& W = tensors.at(name.substr(0, 3));
    return {name, {heads, W.shape()[0], W.shape()[1] / heads}, W.dtype(), W.bytes()};
  }
  const Stage& stage = stages.at(StageName(place_of(name)));
  const DType dtype = stage.whole ? DType::i64 : in.result;
  const bool lifted = name != "positions" && (name != "context" || in.packed);
  const Shape shape = lifted ? user_shape(stage.shape, in, stage.has_heads) : stage.shape;
  const double flops = (name == "context" ? stages.at("head_context") : stage).flops;
  return {name, shape, dtype, product({product(shape), size_of(dtype)}), flops};
}

/// The tensors, and their copies in the dtype that is computed in.
std::size_t bytes_of_inputs(const TensorMap& tensors, const Inputs& in) {
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    const DType used = is_float(tensor.dtype()) ? in.compute : DType::i64;
    bytes += tensor.bytes();
    if (tensor.dtype() != used) bytes = sum(bytes, product({tensor.size(), size_of(used)}));
  }
  return bytes;
}

}  // namespace

std::size_t sum(std::size_t a, std::size_t b) { return a > kMost - b ? kMost : a + b; }

std::size_t product(const Shape& factors) {
  std::size_t result = 1;
  for (const std::size_t factor : factors)
    if (__builtin_mul_overflow(result, factor, &result)) return kMost;
  return result;
}

Plan plan(const Inputs& in, const TensorMap& tensors, const Options& options,
          const std::vector<std::string>& outputs, const std::set<std::string>& offered) {
  check_outputs(outputs, tensors, options);
  const StageTable stages(tensors, in, options);
  const auto bit_of = [&](const std::string& name) -> StageSet {
    const bool given = tensors.contains(name) || name.ends_with("_heads");
    return given ? 0 : only(StageName(place_of(name)));
  };
  StageSet asked = 0;
  for (const std::string& name : outputs) asked |= bit_of(name);
  const StageSet needed = stages.with_needs(asked);
  Plan result;
  if (needs_scores(outputs)) {
    result.kept_by = stages.all_floats(needed) ? unknown_to_kernels(in, options) : "integers";
    result.path = result.kept_by ? "reference" : "kernels";
  }
  const bool fast = result.path && !result.kept_by;
  if (fast) result.bytes = sum(result.bytes, bytes_of_kernel_problem(in, options));
  StageSet kept = 0;
  for (const std::string& name : outputs) {
    PlannedOutput output = planned(name, tensors, stages, in);
    const StageSet bit = bit_of(name);
    output.streamed = bit != 0 && fast && offered.contains(name) && streams(name, outputs);
    if (!output.streamed) kept |= bit;
    if (bit != 0 && !output.streamed && in.result != in.compute)
      result.bytes = sum(result.bytes, output.bytes);
    result.outputs.push_back(output);
  }
  if (asked & (only("mean_weights") | only("key_weights"))) kept |= only("weights");
  std::size_t largest = 0;
  constexpr StageSet kMatrices = only("scores") | only("scaled_scores") | only("masked_scores") |
                                 only("weights");  // of the size L * S
  const StageSet unkept = fast ? kMatrices & ~kept : 0;
  for (std::size_t place = 0; place < kNone; ++place) {
    const StageName stage(place);
    if ((needed & only(stage)) == 0) continue;
    const std::size_t bytes = unkept & only(stage) ? 0 : stages.bytes_of(stage);
    largest = std::max(largest, bytes);
    result.bytes = sum(result.bytes, bytes);
    result.flops += stages.at(stage).flops;
  }
  result.bytes = sum(result.bytes, sum(largest, bytes_of_inputs(tensors, in)));
  return result;
}

}  // namespace attn
