// Hypotheses about projections, norms and rotary positions.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>
#include <vector>

#include "attn/attention/rotary.h"
#include "attn/base/number_text.h"
#include "attn/diagnose/changes.h"
#include "attn/diagnose/hypotheses.h"

namespace attn {
namespace {

bool is_rotary(const Inputs& in) { return in.options.rotary.kind != Rotary::Kind::none; }

bool has_tables(const Variant& p) { return p.has(Input::cos); }

std::string kind_text(Rotary::Kind kind) {
  return kind == Rotary::Kind::half ? "half" : kind == Rotary::Kind::none ? "none" : "interleaved";
}

/// 1 without rotary positions, or if their scaling has none.
double attention_factor(const Inputs& in) {
  const Rotary& rotary = in.options.rotary;
  if (rotary.scaling != Rotary::Scaling::yarn && rotary.scaling != Rotary::Scaling::longrope)
    return 1;
  // Position 0 has the cosine of 0 times the factor.
  return rotary_angles(in, Tensor(DType::i64, {1, 1}), {}, {}).cos.data<double>()[0];
}

/// The positions of queries or keys, changed.
Tensor positions(const Tensor& given, const std::function<std::int64_t(std::int64_t)>& change) {
  Tensor result = given;
  for (std::int64_t& p : result.mutable_data<std::int64_t>()) p = change(p);
  return result.shape()[0] == 1 ? result.reshaped({result.shape()[1]}) : result;
}

std::int64_t same(std::int64_t p) { return p; }
std::int64_t zero(std::int64_t) { return 0; }
std::int64_t next(std::int64_t p) { return p + 1; }
std::int64_t twice(std::int64_t p) { return 2 * p; }

Found with_positions(Variant& p, const Inputs& in, std::int64_t (*queries)(std::int64_t),
                     std::int64_t (*keys)(std::int64_t), const std::string& kernel) {
  if (!is_rotary(in)) return std::nullopt;
  p.set(Input::position_ids, positions(in.query_positions, queries));
  p.set(Input::key_position_ids, positions(in.key_positions, keys));
  return words(kernel);
}

Found with_base(Variant& p, const Inputs& in, double base) {
  if (!is_rotary(in) || has_tables(p) || in.options.rotary.base == base || base <= 1)
    return std::nullopt;
  p.options.rotary.base = base;
  return flag("--rotary-base " + python_repr(base), python_repr(in.options.rotary.base));
}

/// The positions of which tables have rows, in order: those of queries and keys, whose numbers in
/// the variant become their places here. If the scale of queries depends on positions, these stay
/// as they are, and tables have rows for all up to the last. nullopt if that is too large.
std::optional<std::vector<std::int64_t>> positions_of_tables(Variant& p, const Inputs& in) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 24;
  std::vector<std::int64_t> all;
  if (in.options.query_scale.factor != 0) {
    if (in.last_position >= kMostElements / static_cast<std::int64_t>(in.D)) return std::nullopt;
    all.resize(static_cast<std::size_t>(in.last_position) + 1);
    std::iota(all.begin(), all.end(), std::int64_t{0});
    return all;
  }
  for (const Tensor& given : {in.query_positions, in.key_positions}) {
    const auto some = given.data<std::int64_t>();
    all.insert(all.end(), some.begin(), some.end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  const auto place = [&](std::int64_t position) {
    return std::lower_bound(all.begin(), all.end(), position) - all.begin();
  };
  p.set(Input::position_ids, positions(in.query_positions, place));
  p.set(Input::key_position_ids, positions(in.key_positions, place));
  return all;
}

/// Rotates with tables of the job's cosines and sines, changed.
Found with_angles(Variant& p, const Inputs& in, double (*cos)(double), double (*sin)(double),
                  const std::string& kernel) {
  if (!is_rotary(in)) return std::nullopt;
  if (!has_tables(p)) {
    const auto rows = positions_of_tables(p, in);
    if (!rows) return Claim{kernel, "", false, true};
    Tensor all(DType::i64, {1, rows->size()});
    std::copy(rows->begin(), rows->end(), all.mutable_data<std::int64_t>().begin());
    const Angles angles = rotary_angles(in, all, in[Input::cos], in[Input::sin]);
    const Shape shape = {angles.cos.shape()[1], angles.cos.shape()[2]};
    p.set(Input::cos, angles.cos.reshaped(shape));
    p.set(Input::sin, angles.sin.reshaped(shape));
    p.erase({Input::short_factor, Input::long_factor});
    Rotary tables;
    tables.kind = in.options.rotary.kind, tables.width = in.options.rotary.width;
    p.options.rotary = tables;
  }
  p.set(Input::cos, mapped(*p.find(Input::cos), cos));
  p.set(Input::sin, mapped(*p.find(Input::sin), sin));
  return words(kernel);
}

/// W (M, heads * D), whose columns are those of all heads for column 0, then for column 1, ...
Found with_interleaved_heads(Variant& p, const Inputs& in) {
  if (!in.projected || in.H < 2) return std::nullopt;
  bool changes = false;
  const auto interleave = [&](Input input, std::size_t heads) {
    const Tensor* W = p.find(input);
    if (W == nullptr || heads < 2) return;
    const std::size_t columns = W->shape().back(), width = columns / heads;
    if (width < 2) return;
    p.set(input, reordered(*W, 1, [&](std::size_t i) {
            const std::size_t c = i % columns;
            return i - c + c % width * heads + c / width;
          }));
    changes = true;
  };
  interleave(Input::W_Q, in.H), interleave(Input::b_Q, in.H);
  interleave(Input::W_K, in.G), interleave(Input::b_K, in.G);
  interleave(Input::W_V, in.G), interleave(Input::b_V, in.G);
  if (!changes) return std::nullopt;
  return words("the columns of W_Q, W_K and W_V split as (D, H) instead of (H, D)");
}

Found with_epsilon(Variant& p, const Inputs& in, double epsilon) {
  const QkNorm norm = in.options.qk_norm;
  if (norm != QkNorm::rms && norm != QkNorm::layer) return std::nullopt;
  const double now = in.options.qk_norm_epsilon > 0 ? in.options.qk_norm_epsilon
                     : norm == QkNorm::rms          ? 1e-6
                                                    : 1e-5;
  if (now == epsilon) return std::nullopt;
  p.options.qk_norm_epsilon = epsilon;
  return flag("--qk-norm-epsilon " + python_repr(epsilon), python_repr(now));
}

/// The queries, keys and values of the job, as a variant without
/// projections.
struct Given {
  Tensor Q, K, V;
};
Given given_by(const Variant& p) {
  const Variant computed = attention_only(p);
  return {*computed.find(Input::Q), *computed.find(Input::K), *computed.find(Input::V)};
}

/// Makes Q, K and V those of attention_only(), with these queries and keys, and applies
/// `options` to them.
Found with_given(Variant& p, const Tensor& Q, const Tensor& K, const Options& options,
                 const std::string& kernel) {
  Variant changed = attention_only(p);
  changed.set(Input::Q, Q), changed.set(Input::K, K);
  changed.options.qk_norm = options.qk_norm, changed.options.qk_norm_axis = options.qk_norm_axis;
  changed.options.qk_norm_epsilon = options.qk_norm_epsilon;
  changed.options.norm_offset = options.norm_offset;
  if (options.qk_norm != QkNorm::none)
    for (const Input input : {Input::q_norm, Input::k_norm, Input::q_norm_bias, Input::k_norm_bias})
      if (const Tensor* weight = p.find(input)) changed.set(input, *weight);
  p = std::move(changed);
  return words(kernel);
}

Variant without_norm(const Variant& p) {
  Variant plain = p;
  plain.options.qk_norm = QkNorm::none;
  plain.erase({Input::q_norm, Input::k_norm, Input::q_norm_bias, Input::k_norm_bias});
  return plain;
}

Found only_queries_normalised(Variant& p, const Inputs&) {
  const Given plain = given_by(without_norm(p)), normalised = given_by(p);
  return with_given(p, normalised.Q, plain.K, Options{}, "keys that are not normalised");
}

/// Queries and keys are rotated first.
Found normalised_last(Variant& p, const Inputs& in) {
  const Given rotated = given_by(without_norm(p));
  return with_given(p, rotated.Q, rotated.K, in.options, "qk_norm after the rotary positions");
}

/// Values rotated like keys.
Found values_rotated(Variant& p, const Inputs& in) {
  if (!is_rotary(in) || in.D != in.Dv) return std::nullopt;
  Variant of_values = without_norm(p);
  const auto replace = [&](Input key, Input value) {
    if (const Tensor* tensor = p.find(value))
      of_values.set(key, *tensor);
    else
      of_values.erase({key});
  };
  if (in.projected)
    replace(Input::W_K, Input::W_V), replace(Input::b_K, Input::b_V);
  else if (p.has(Input::V))
    of_values.set(Input::K, *p.find(Input::V));
  const Tensor V = given_by(of_values).K;
  const Given given = given_by(p);
  const auto claim = with_given(p, given.Q, given.K, Options{}, "values that are rotated, too");
  p.set(Input::V, V);
  return claim;
}

/// Heads are split wrongly, and then normalised and rotated.
Found viewed_first(Variant& p, const Inputs& in, bool keys) {
  // A norm of each head, with the same weights, does not depend on the order.
  const Tensor* weight = p.find(Input::q_norm);
  const bool depends =
      is_rotary(in) ||
      (in.options.qk_norm != QkNorm::none &&
       (in.options.qk_norm_axis == QkNormAxis::all || (weight != nullptr && weight->rank() > 1)));
  if (in.projected || in.H < 2 || (keys && in.G < 2) || (keys && in.P > 0) || !depends)
    return std::nullopt;
  p.set(Input::Q, viewed_as_heads(*in[Input::Q]));
  for (const Input input : {Input::K, Input::V})  // values that are not given are the keys
    if (in[input]) p.set(input, keys ? viewed_as_heads(*in[input]) : *in[input]);
  p.options.layout = Layout::bhld;
  p.options.heads = static_cast<std::int64_t>(in.H);
  p.options.kv_heads = static_cast<std::int64_t>(in.G);
  return words(std::string(keys ? "Q, K and V" : "Q") +
               " of shape (B, L, H, D) read as (B, H, L, D)");
}

// ---- the gate and the output projection, after attention ----

Found with_join(Variant& variant, const Inputs& in, Join join, const std::string& kernel) {
  if (!variant.has(Input::W_O) || variant.has(Input::W_UV) || in.H < 2 || in.L < 2)
    return std::nullopt;
  if (join == Join::viewed_as_heads && in.H == in.L) return std::nullopt;  // the same as viewed
  variant.join = join;
  return words(kernel);
}

}  // namespace

Hypotheses projection_hypotheses() {
  return {
      {"rotary.dropped", kProjection,
       [](Variant& p, const Inputs& in) -> Found {
         if (!is_rotary(in)) return std::nullopt;
         p.options.rotary = {};
         p.erase({Input::cos, Input::sin, Input::short_factor, Input::long_factor});
         if (in.options.query_scale.factor == 0)
           p.erase({Input::position_ids, Input::key_position_ids});
         return flag("without --rotary", kind_text(in.options.rotary.kind));
       }},
      {"rotary.pairs", kProjection,
       [](Variant& p, const Inputs& in) -> Found {
         if (!is_rotary(in)) return std::nullopt;
         const bool half = in.options.rotary.kind == Rotary::Kind::half;
         p.options.rotary.kind = half ? Rotary::Kind::interleaved : Rotary::Kind::half;
         return flag("--rotary " + kind_text(p.options.rotary.kind),
                     kind_text(in.options.rotary.kind));
       }},
      {"rotary.keys_not_rotated", kProjection,
       change_by(with_positions, same, zero, "keys that are not rotated")},
      {"rotary.queries_not_rotated", kProjection,
       change_by(with_positions, zero, same, "queries that are not rotated")},
      {"rotary.queries_one_late", kProjection,
       change_by(with_positions, next, same, "rotary positions of the queries + 1")},
      {"rotary.queries_one_early", kProjection,
       change_by(with_positions, same, next, "rotary positions of the queries - 1")},
      {"rotary.values_rotated", kProjection, values_rotated},
      {"rotary.twice", kProjection,
       [](Variant& p, const Inputs& in) {
         if (has_tables(p)) return Found();
         if (const double factor = attention_factor(in); factor != 1)
           p.options.rotary.attention_factor = factor * factor;
         return with_positions(p, in, twice, twice, "rotated twice");
       }},
      {"rotary.cache_ignored", kProjection,
       [](Variant& p, const Inputs& in) -> Found {
         if (!is_rotary(in) || in.P == 0) return std::nullopt;
         const auto from_0 = [](const Tensor& given) {
           const auto all = given.data<std::int64_t>();
           const std::int64_t first = all.empty() ? 0 : all[0];
           return positions(given, [first](std::int64_t x) { return x - std::min(x, first); });
         };
         p.set(Input::position_ids, from_0(in.query_positions));
         p.set(Input::key_position_ids, from_0(in.key_positions));
         return words("rotary positions that start at 0 in spite of the cache");
       }},
      {"rotary.sign", kProjection,
       [](Variant& p, const Inputs& in) {
         return with_angles(
             p, in, [](double x) { return x; }, [](double x) { return -x; },
             "rotated by negative angles, or cosines and sines swapped");
       }},
      {"rotary.base*10", kProjection,
       [](Variant& p, const Inputs& in) { return with_base(p, in, in.options.rotary.base * 10); }},
      {"rotary.base/10", kProjection,
       [](Variant& p, const Inputs& in) { return with_base(p, in, in.options.rotary.base / 10); }},
      {"rotary.base_10000", kProjection, change_by(with_base, 10000)},
      {"rotary.base_500000", kProjection, change_by(with_base, 500000)},
      {"rotary.base_1000000", kProjection, change_by(with_base, 1000000)},
      {"rotary.scaling_dropped", kProjection,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.rotary.scaling == Rotary::Scaling::none) return std::nullopt;
         Rotary plain;
         plain.kind = in.options.rotary.kind, plain.width = in.options.rotary.width;
         plain.base = in.options.rotary.base;
         p.options.rotary = plain;
         p.erase({Input::short_factor, Input::long_factor});
         return flag("without --rotary-scaling");
       }},
      {"rotary.attention_factor_dropped", kProjection,
       [](Variant& p, const Inputs& in) -> Found {
         const Rotary& rotary = in.options.rotary;
         if ((rotary.scaling != Rotary::Scaling::yarn &&
              rotary.scaling != Rotary::Scaling::longrope) ||
             rotary.attention_factor == 1)
           return std::nullopt;
         p.options.rotary.attention_factor = 1;
         return flag("--rotary-attention-factor 1");
       }},
      {"rotary.attention_factor_squared", kProjection,
       [](Variant& p, const Inputs& in) -> Found {
         const double factor = attention_factor(in);
         if (factor == 1) return std::nullopt;
         p.options.rotary.attention_factor = factor * factor;
         return flag("--rotary-attention-factor " + python_repr(factor * factor) + ", squared",
                     python_repr(factor));
       }},
      {"rotary.all_columns", kProjection,
       [](Variant& p, const Inputs& in) -> Found {
         const auto D = static_cast<std::int64_t>(in.D);
         if (!is_rotary(in) || has_tables(p) || in.options.rotary.width == 0 ||
             in.options.rotary.width == D)
           return std::nullopt;
         p.options.rotary.width = 0;
         return flag("--rotary-width " + std::to_string(D),
                     std::to_string(in.options.rotary.width));
       }},

      {"heads.viewed_before_rotary", kProjection, change_by(viewed_first, true)},
      {"heads.queries_viewed_before_rotary", kProjection, change_by(viewed_first, false)},

      {"norm.dropped", kProjection,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.qk_norm == QkNorm::none) return std::nullopt;
         p.options.qk_norm = QkNorm::none;
         if (in.options.input_norm == QkNorm::none) p.options.norm_offset = 0;
         p.erase({Input::q_norm, Input::k_norm, Input::q_norm_bias, Input::k_norm_bias});
         return flag("without --qk-norm");
       }},
      {"norm.axis", kProjection,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.qk_norm == QkNorm::none || in.H < 2) return std::nullopt;
         const bool head = in.options.qk_norm_axis == QkNormAxis::head;
         p.options.qk_norm_axis = head ? QkNormAxis::all : QkNormAxis::head;
         const auto repeat = [&](Input input, std::size_t heads) {
           const Tensor* weight = p.find(input);
           if (weight == nullptr) return;
           if (head && weight->rank() == 1) {
             Tensor all(DType::f64, {heads * weight->size()});
             const Tensor one = cast(*weight, DType::f64);
             for (std::size_t i = 0; i < all.size(); ++i)
               all.mutable_data<double>()[i] = one.data<double>()[i % one.size()];
             p.set(input, all);
           } else {
             p.set(input, head ? weight->reshaped({weight->size()})
                               : weight->reshaped({heads, weight->size() / heads}));
           }
         };
         repeat(Input::q_norm, in.H), repeat(Input::q_norm_bias, in.H);
         repeat(Input::k_norm, in.G), repeat(Input::k_norm_bias, in.G);
         return flag(head ? "--qk-norm-axis all" : "--qk-norm-axis head", head ? "head" : "all");
       }},
      {"norm.weight_dropped", kProjection,
       [](Variant& p, const Inputs&) {
         return without(p, {Input::q_norm, Input::k_norm}, "without --q-norm and --k-norm");
       }},
      {"norm.query_weight_for_keys", kProjection,
       [](Variant& p, const Inputs&) -> Found {
         const Tensor *q = p.find(Input::q_norm), *k = p.find(Input::k_norm);
         if (q == nullptr || k == nullptr || q->shape() != k->shape()) return std::nullopt;
         const Tensor of_queries = *q;
         p.set(Input::q_norm, *k);
         p.set(Input::k_norm, of_queries);
         return words("q_norm and k_norm swapped");
       }},
      {"norm.offset", kProjection,
       [](Variant& p, const Inputs& in) -> Found {
         if (!p.has(Input::q_norm) && !p.has(Input::k_norm)) return std::nullopt;
         p.options.norm_offset = in.options.norm_offset == 0 ? 1 : 0;
         return flag("--norm-offset " + python_repr(p.options.norm_offset),
                     python_repr(in.options.norm_offset));
       }},
      {"norm.epsilon_1e-5", kProjection, change_by(with_epsilon, 1e-5)},
      {"norm.epsilon_1e-6", kProjection, change_by(with_epsilon, 1e-6)},
      {"norm.keys_not_normalised", kProjection,
       [](Variant& p, const Inputs& in) {
         return in.options.qk_norm == QkNorm::none ? Found() : only_queries_normalised(p, in);
       }},
      {"norm.after_rotary", kProjection,
       [](Variant& p, const Inputs& in) {
         return in.options.qk_norm == QkNorm::none || !is_rotary(in) ? Found()
                                                                     : normalised_last(p, in);
       }},
      {"norm.input_norm_dropped", kProjection,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.input_norm == QkNorm::none) return std::nullopt;
         p.options.input_norm = QkNorm::none;
         if (in.options.qk_norm == QkNorm::none) p.options.norm_offset = 0;
         p.erase({Input::input_norm_weight, Input::input_norm_bias});
         return flag("without --input-norm");
       }},

      {"projection.b_Q_dropped", kProjection, dropped(Input::b_Q)},
      {"projection.b_K_dropped", kProjection, dropped(Input::b_K)},
      {"projection.b_V_dropped", kProjection, dropped(Input::b_V)},
      {"projection.biases_dropped", kProjection,
       [](Variant& p, const Inputs&) {
         return p.has(Input::b_Q) && p.has(Input::b_V)
                    ? without(p, {Input::b_Q, Input::b_K, Input::b_V},
                              "without --b-q, --b-k and --b-v")
                    : Found();
       }},
      {"projection.W_Q_transposed", kProjection, change_by(with_transposed, Input::W_Q)},
      {"projection.W_K_transposed", kProjection, change_by(with_transposed, Input::W_K)},
      {"projection.W_V_transposed", kProjection, change_by(with_transposed, Input::W_V)},
      {"projection.all_transposed", kProjection,
       [](Variant& p, const Inputs& in) -> Found {
         bool changes = false;
         for (const Input W : {Input::W_Q, Input::W_K, Input::W_V, Input::W_O})
           changes |= with_transposed(p, in, W).has_value();
         if (!changes) return std::nullopt;
         return words("all square weights transposed, as with the other --weights-layout");
       }},
      {"projection.heads_interleaved", kProjection, with_interleaved_heads},
      {"projection.clip_dropped", kProjection,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.clip_qkv == 0) return std::nullopt;
         p.options.clip_qkv = 0;
         return flag("without --clip-qkv");
       }},
      {"projection.query_scale_dropped", kProjection,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.query_scale.factor == 0) return std::nullopt;
         p.options.query_scale = {};
         if (!is_rotary(in)) p.erase({Input::position_ids});
         return flag("without --query-scale-factor");
       }},
      {"projection.positions_dropped", kProjection,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.position.kind == Position::Kind::none) return std::nullopt;
         p.options.position.kind = Position::Kind::none;
         return flag("without --position");
       }},
      {"projection.positions_from_1", kProjection,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.position.kind == Position::Kind::none) return std::nullopt;
         p.options.position.first =
             in.options.position.first == 1 ? 0 : in.options.position.first + 1;
         return flag("--position-first " + std::to_string(p.options.position.first),
                     std::to_string(in.options.position.first));
       }},
      {"projection.embedding_scale_dropped", kProjection,
       [](Variant& p, const Inputs& in) -> Found {
         const Position& position = in.options.position;
         if (position.embedding_scale == 1 && !position.embedding_scale_sqrt) return std::nullopt;
         p.options.position.embedding_scale = 1;
         p.options.position.embedding_scale_sqrt = false;
         return flag("without --embedding-scale");
       }},
  };
}

Hypotheses output_hypotheses() {
  return {
      {"output.o_scale_dropped", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.o_scale == 1) return std::nullopt;
         p.options.o_scale = 1;
         return flag("without --o-scale", in_words(in.options.o_scale));
       }},
      {"output.o_scale_inverted", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.o_scale == 1) return std::nullopt;
         p.options.o_scale = 1 / in.options.o_scale;
         return words("the context multiplied by --o-scale instead of divided");
       }},
      {"output.gate_dropped", kAttention,
       [](Variant& p, const Inputs&) { return without(p, {Input::gate}, "without the gate"); }},
      {"output.W_O_dropped", kAttention,
       [](Variant& p, const Inputs&) -> Found {
         const Tensor* W = p.find(Input::W_O);
         if (W == nullptr || W->shape()[0] != W->shape()[1]) return std::nullopt;
         Tensor identity(DType::f64, W->shape());
         for (std::size_t i = 0; i < W->shape()[0]; ++i)
           identity.mutable_data<double>()[i * W->shape()[0] + i] = 1;
         p.erase({Input::b_O});
         p.set(Input::W_O, identity);
         return flag("without --w-o: A is the context");
       }},
      {"output.W_O_transposed", kAttention, change_by(with_transposed, Input::W_O)},
      {"output.viewed_before_W_O", kAttention,
       change_by(with_join, Join::viewed,
                 "the contexts (B, H, L, Dv) read as (B, L, H, Dv) before W_O")},
      {"output.viewed_as_heads_before_W_O", kAttention,
       change_by(with_join, Join::viewed_as_heads,
                 "the contexts (B, L, H, Dv) read as (B, H, L, Dv) before W_O")},
      {"output.viewed_as_inputs_before_W_O", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.G < 2 || in.P > 0) return std::nullopt;
         for (const Input input : {Input::Q, Input::K, Input::V})
           p.set(input, viewed_as_heads(*p.find(input)));
         return with_join(
             p, in, Join::viewed,
             "Q, K and V of shape (B, L, H, D) read as (B, H, L, D), and contexts back");
       }},
      {"output.b_O_dropped", kAttention, dropped(Input::b_O)},
  };
}

}  // namespace attn
