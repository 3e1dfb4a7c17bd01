#include "attn/core/inputs.h"

#include "attn/core/axes.h"
#include "attn/core/checks.h"
#include "attn/core/heads.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

using Letters = std::vector<std::string>;

Letters with_batch(bool batched, Letters letters) {
  if (batched) letters.insert(letters.begin(), "B");
  return letters;
}

bool check_rank(const std::string& name, const Tensor& tensor, std::size_t most, Axes& axes) {
  if (tensor.rank() >= 2 && tensor.rank() <= most) return true;
  axes.problem(name + ": expected " + (most == 4 ? "2, 3 or 4" : "2 or 3") + " axes, found " +
               to_string(tensor.shape()) +
               (tensor.rank() == 1 ? "; one vector is written [[...]]" : ""));
  return false;
}

/// part = whole / heads, where that divides: D of H*D.
void split_axis(const std::string& whole, const std::string& heads, const std::string& part,
                Axes& axes) {
  if (!axes.knows(whole) || !axes.knows(heads)) return;
  const auto& [width, name, found] = axes[whole];
  const auto& [count, option, setting] = axes[heads];
  if (width % count != 0 || (width == 0 && count > 1))
    axes.problem(name + ": expected a width that " + option + " " + setting + " divides, found " +
                 found);
  else
    axes.settle(part, {width / count, name, found});
}

/// whole = part * heads.
void join_axis(const std::string& whole, const std::string& heads, const std::string& part,
               Axes& axes) {
  if (axes.knows(part) && axes.knows(heads))
    axes.settle(whole, {axes[part].length * axes[heads].length, axes[part].name, axes[part].found});
}

void settle_heads(const Options& options, Axes& axes) {
  const auto settle = [&](const char* letter, const char* name, std::int64_t count) {
    if (count > 0)
      axes.settle(letter, {static_cast<std::size_t>(count), name, "= " + std::to_string(count)});
  };
  settle("H", "heads", options.heads);
  settle("G", "kv_heads", options.kv_heads);
}

/// Once "HD" is known: H and G where not given, then D and "GD".
void settle_packed_heads(Axes& axes) {
  axes.settle("H", {1, "heads", "= 1"});
  axes.equate("G", "H");
  split_axis("HD", "H", "D", axes);
  join_axis("GD", "G", "D", axes);
}

void check_groups(Axes& axes) {
  if (!axes.knows("H") || !axes.knows("G")) return;
  const auto& [H, name, found] = axes["H"];
  const auto& [G, kv_name, kv_found] = axes["G"];
  if (H == 0 || G == 0 || H % G != 0)
    axes.problem(kv_name + ": expected a number of key/value heads that divides the " +
                 std::to_string(H) + " of " + name + ", found " + std::to_string(G));
}

/// W_K where it is not given: the source itself has to be as wide as the keys.
void check_identity_keys(Axes& axes) {
  if (axes.knows("Mk") && axes.knows("GD") && axes["Mk"].length != axes["GD"].length)
    axes.problem("W_K: expected (" + std::to_string(axes["Mk"].length) + ", " +
                 std::to_string(axes["GD"].length) + ") to match " + axes["GD"].name + " " +
                 axes["GD"].found + ", found none");
}

void check_embeddings(const TensorMap& tensors, Inputs& in, Axes& axes) {
  const Tensor& embeddings = tensors.at("embeddings");
  if (!check_rank("embeddings", embeddings, 3, axes)) return;
  in.batched = embeddings.rank() == 3;
  axes.take("embeddings", embeddings, with_batch(in.batched, {"L", "M"}));
  if (const Tensor* memory = tensors.find("memory")) {
    axes.take("memory", *memory, with_batch(in.batched, {"S", "Mk"}));
  } else {
    axes.equate("S", "L");
    axes.equate("Mk", "M");
  }
  if (const Tensor* W_Q = tensors.find("W_Q"))
    axes.take("W_Q", *W_Q, {"M", "HD"});
  else
    axes.equate("HD", "M");
  settle_packed_heads(axes);
  if (const Tensor* W_K = tensors.find("W_K"))
    axes.take("W_K", *W_K, {"Mk", "GD"});
  else
    check_identity_keys(axes);
  if (const Tensor* W_V = tensors.find("W_V"))
    axes.take("W_V", *W_V, {"Mk", "GDv"});
  else
    axes.equate("GDv", "Mk");
  split_axis("GDv", "G", "Dv", axes);
}

/// Q, K and V with heads as an axis.
void check_split(const Tensor& Q, const Tensor& K, const Tensor* V, Layout layout, Axes& axes) {
  const auto letters = [=](const char* heads, const char* rows, const char* width) {
    return layout == Layout::bhld ? Letters{"B", heads, rows, width}
                                  : Letters{"B", rows, heads, width};
  };
  axes.take("Q", Q, letters("H", "L", "D"));
  axes.take("K", K, letters("G", "S", "D"));
  if (V != nullptr)
    axes.take("V", *V, letters("G", "S", "Dv"));
  else
    axes.equate("Dv", "D");
}

void check_packed(const Tensor& Q, const Tensor& K, const Tensor* V, bool batched, Axes& axes) {
  axes.take("Q", Q, with_batch(batched, {"L", "HD"}));
  settle_packed_heads(axes);
  axes.take("K", K, with_batch(batched, {"S", "GD"}));
  if (V != nullptr)
    axes.take("V", *V, with_batch(batched, {"S", "GDv"}));
  else
    axes.equate("GDv", "GD");
  split_axis("GDv", "G", "Dv", axes);
}

void check_given(const TensorMap& tensors, const Options& options, Inputs& in, Axes& axes) {
  const Tensor &Q = tensors.at("Q"), &K = tensors.at("K");
  const Tensor* V = tensors.find("V");
  if (!check_rank("Q", Q, 4, axes)) return;
  in.batched = Q.rank() >= 3;
  in.packed = Q.rank() != 4;
  if (in.packed)
    check_packed(Q, K, V, in.batched, axes);
  else
    check_split(Q, K, V, options.layout, axes);
}

void check_parts(const TensorMap& tensors, Axes& axes) {
  join_axis("HDv", "H", "Dv", axes);
  if (const Tensor* W_O = tensors.find("W_O")) axes.take("W_O", *W_O, {"HDv", "Mo"});
  const std::vector<std::pair<std::string, std::string>> kBiases = {
      {"b_Q", "HD"}, {"b_K", "GD"}, {"b_V", "GDv"}, {"b_O", "Mo"}};
  for (const auto& [name, letter] : kBiases)
    if (const Tensor* bias = tensors.find(name)) axes.take(name, *bias, {letter});
}

void check_scale(const Options& options, Axes& axes) {
  const bool divides = options.scale.kind == Scale::Kind::automatic && options.score == Score::dot;
  if (divides && axes.knows("D") && axes["D"].length == 0)
    axes.problem(axes["D"].name +
                 ": expected a width D of at least 1 to divide by sqrt(D), found " +
                 axes["D"].found + "; give a scale");
}

/// The mask with four axes: missing ones are 1, on the left, and the head axis where the user has
/// no heads.
Tensor lifted_mask(const Tensor& mask, bool with_heads) {
  Shape shape = mask.shape();
  if (!with_heads && shape.size() == 3) shape.insert(shape.begin() + 1, 1);
  while (shape.size() < 4) shape.insert(shape.begin(), 1);
  return mask.reshaped(shape);
}

/// `full` is (B, H, L, S); the message shows the scores as the user sees them.
void check_mask(const Tensor& mask, Shape full, const Inputs& in, Axes& axes) {
  const Shape shape = lifted_mask(mask, in.with_heads).shape();
  bool fits = shape.size() == 4;
  for (std::size_t axis = 0; fits && axis < 4; ++axis)
    fits = shape[axis] == 1 || shape[axis] == full[axis];
  if (fits) return;
  if (!in.with_heads) full.erase(full.begin() + 1);
  if (!in.batched) full.erase(full.begin());
  axes.problem("mask: expected a shape that broadcasts to the scores " + to_string(full) +
               ", found " + to_string(mask.shape()));
}

void set_mask_and_rows(const TensorMap& tensors, const Options& options, Inputs& in, Axes& axes) {
  if (!axes.knows("L")) return;
  in.rows = chosen_rows(options.rows, axes["L"].length, axes);
  const Tensor* mask = tensors.find("mask");
  if (mask == nullptr || !axes.knows("H") || !axes.knows("S")) return;
  const std::size_t B = axes.knows("B") ? axes["B"].length : 1;
  check_mask(*mask, {B, axes["H"].length, axes["L"].length, axes["S"].length}, in, axes);
  in.mask = lifted_mask(as_mask(*mask, in.compute, axes), in.with_heads);
}

/// (N, M) or (B, N, M) -> (B, N, M).
Tensor lifted(const Tensor& tensor) {
  const Shape& shape = tensor.shape();
  return tensor.rank() == 3 ? tensor : tensor.reshaped({1, shape[0], shape[1]});
}

/// Q, K or V in any of their forms -> (B, heads, N, D).
Tensor lifted_heads(const Tensor& tensor, std::size_t heads, Layout layout) {
  if (tensor.rank() != 4) return split_heads(lifted(tensor), heads);
  return layout == Layout::bhld ? tensor : swap_middle_axes(tensor);
}

void set_tensors(const TensorMap& numbers, Layout layout, Inputs& in) {
  const auto find = [&](const std::string& name) {
    const Tensor* tensor = numbers.find(name);
    return tensor ? std::optional(*tensor) : std::nullopt;
  };
  in.W_Q = find("W_Q"), in.W_K = find("W_K"), in.W_V = find("W_V"), in.W_O = find("W_O");
  in.b_Q = find("b_Q"), in.b_K = find("b_K"), in.b_V = find("b_V"), in.b_O = find("b_O");
  if (in.projected) {
    in.embeddings = lifted(numbers.at("embeddings"));
    if (const auto memory = find("memory")) in.memory = lifted(*memory);
  } else {
    in.Q = lifted_heads(numbers.at("Q"), in.H, layout);
    in.K = lifted_heads(numbers.at("K"), in.G, layout);
    in.V = numbers.contains("V") ? lifted_heads(numbers.at("V"), in.G, layout) : in.K;
  }
}

void set_lengths(Inputs& in, const Axes& axes) {
  in.B = axes.knows("B") ? axes["B"].length : 1;
  in.H = axes["H"].length, in.G = axes["G"].length;
  in.L = axes["L"].length, in.S = axes["S"].length;
  in.D = axes["D"].length, in.Dv = axes["Dv"].length;
}

}  // namespace

Inputs make_inputs(const TensorMap& tensors, const Options& options) {
  Axes axes;
  Inputs in;
  in.result = result_dtype(tensors, options.compute);
  in.compute = in.result == DType::f64 ? DType::f64 : DType::f32;
  check_options(tensors, options, axes);
  check_names(tensors, axes);
  const TensorMap numbers = as_numbers(tensors, in.compute, axes);
  settle_heads(options, axes);
  in.projected = !tensors.contains("Q");
  if (in.projected && tensors.contains("embeddings"))
    check_embeddings(tensors, in, axes);
  else if (tensors.contains("Q") && tensors.contains("K"))
    check_given(tensors, options, in, axes);
  in.with_heads = options.heads > 0 || !in.packed;
  check_groups(axes);
  check_parts(tensors, axes);
  check_scale(options, axes);
  set_mask_and_rows(tensors, options, in, axes);
  if (!axes.problems().empty()) throw Error(ErrorKind::data, axes.problems());
  set_lengths(in, axes);
  set_tensors(numbers, options.layout, in);
  return in;
}

}  // namespace attn
