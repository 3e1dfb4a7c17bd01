#include "support/oracle_case.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/kernel_case.h"
#include "support/oracle.h"
#include "support/oracle_options.h"

using namespace attn;

namespace {

using oracle::Numbers;
using Reals = std::vector<long double>;

enum class Source { given, self, cross };

/// Draws a case step by step, and fills `problem` along with the tensors.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : dice_{std::mt19937_64(seed)} {}

  OracleCase run() {
    choose_shape();
    choose_dtypes();
    choose_options();
    if (source_ == Source::given)
      draw_given();
    else
      draw_projected();
    spread_mask();
    expect_stages();
    expect_output();
    return result_;
  }

 private:
  bool chance(double p) { return dice_.chance(p); }
  std::size_t one_of(std::initializer_list<std::size_t> choices) { return dice_.one_of(choices); }

  void choose_shape() {
    rank_ = one_of({2, 2, 3, 4});
    source_ = rank_ == 4 || chance(0.5) ? Source::given
              : chance(0.5)             ? Source::self
                                        : Source::cross;
    with_heads_ = rank_ == 4 || chance(0.5);
    p_.B = rank_ == 2 ? 1 : one_of({0, 1, 2, 3});
    p_.G = with_heads_ ? one_of({1, 2, 3}) : 1;
    p_.H = with_heads_ ? p_.G * one_of({1, 2, 3}) : 1;
    p_.L = one_of({0, 1, 2, 3, 5, 8});
    p_.S = source_ == Source::self ? p_.L : one_of({0, 1, 2, 3, 5, 17});
    p_.D = one_of({1, 2, 3, 4, 8});
    p_.Dv = one_of({1, 2, 5});
    if (source_ == Source::given && p_.H == 1 && chance(0.1)) p_.D = 0;
    identity_ = source_ != Source::given && chance(0.2);
    if (identity_) p_.G = p_.H, p_.Dv = p_.D;
    M_ = identity_ ? p_.H * p_.D : one_of({1, 2, 3, 5});
    Mk_ = identity_ || source_ == Source::self ? M_ : one_of({1, 2, 4});
  }

  void choose_dtypes() {
    floats_ = std::vector<DType>{DType::f64, DType::f64, DType::f32,
                                 DType::f32, DType::f16, DType::bf16}[dice_.random() % 6];
    integer_chance_ = chance(0.2) ? 1 : chance(0.15) ? 0.5 : 0;
    compute_ = chance(0.1) ? Compute::f32 : chance(0.1) ? Compute::f64 : Compute::automatic;
  }

  void choose_options() {
    result_.options = random_options(dice_, integer_chance_ == 0 && p_.D > 0);
    Options& o = result_.options;
    o.compute = compute_;
    if (rank_ != 4) o.layout = Layout::bhld;
    if (with_heads_ && (rank_ != 4 || chance(0.5))) o.heads = static_cast<std::int64_t>(p_.H);
    if (with_heads_ && (p_.G != p_.H || chance(0.3))) o.kv_heads = static_cast<std::int64_t>(p_.G);
    if (p_.D == 0) o.scale.kind = Scale::Kind::none;
    for (std::size_t i = 0; i < p_.L; ++i) p_.rows.push_back(i);
    if (p_.L > 0 && chance(0.3)) choose_rows();
  }

  void choose_rows() {
    p_.rows.clear();
    for (std::size_t more = one_of({1, 2, 3}); more > 0; --more) {
      const std::size_t row = dice_.random() % p_.L;
      p_.rows.push_back(row);
      result_.options.rows.push_back(static_cast<std::int64_t>(row) -
                                     (chance(0.5) ? static_cast<std::int64_t>(p_.L) : 0));
    }
  }

  /// Adds a tensor with its exact elements. All values are exact in all float dtypes that the case
  /// may compute in.
  Numbers draw(const std::string& name, const Shape& shape) {
    const bool integers = chance(integer_chance_);
    std::normal_distribution<> normal;
    std::vector<double> values(element_count(shape));
    for (double& value : values)
      value = integers ? static_cast<double>(dice_.random() % 9) - 4
                       : static_cast<double>(static_cast<float>(normal(dice_.random)));
    if (!integers && floats_ == DType::f64 && compute_ != Compute::f32)
      for (double& value : values) value += 0x1p-40 * normal(dice_.random);
    const bool flags = integers && chance(0.1), bytes = integers && chance(0.3);
    const DType dtype = !integers ? floats_
                        : flags   ? DType::boolean
                        : bytes   ? DType::i8
                                  : DType::i64;
    all_integers_ = all_integers_ && integers;
    const Tensor tensor = cast(Tensor::of<double>(shape, values), dtype);
    result_.tensors.set(name, tensor);
    was_integer_ = integers;
    const std::vector<double> exact = doubles_of(tensor);
    return {Reals(exact.begin(), exact.end()), 0};
  }

  /// Sets the dtypes of the results; called when all tensors are drawn.
  void settle_dtypes() {
    DType widest = all_integers_ ? DType::f64 : floats_;
    if (compute_ == Compute::f32) widest = DType::f32;
    if (compute_ == Compute::f64) widest = DType::f64;
    result_.result = widest;
    p_.u = widest == DType::f64 ? 0x1p-53L : 0x1p-24L;
    result_u_ = widest == DType::f16 ? 0x1p-11L : widest == DType::bf16 ? 0x1p-8L : 0;
  }

  void draw_given() {
    const auto take = [&](const char* name, std::size_t heads, std::size_t rows,
                          std::size_t width) {
      const bool packed = rank_ != 4, blhd = result_.options.layout == Layout::blhd;
      Shape shape = {p_.B, rows, heads * width};
      if (rank_ == 2) shape = {rows, heads * width};
      if (!packed) shape = blhd ? Shape{p_.B, rows, heads, width} : Shape{p_.B, heads, rows, width};
      const Numbers drawn = draw(name, shape);
      return packed || blhd ? oracle::split(drawn, p_.B, rows, heads, width) : drawn;
    };
    p_.Q = take("Q", p_.H, p_.L, p_.D);
    const bool Q_integer = was_integer_;
    p_.K = take("K", p_.G, p_.S, p_.D);
    p_.exact_scores = Q_integer && was_integer_;
    if (chance(0.2)) {
      p_.V = p_.K;
      p_.Dv = p_.D;
    } else {
      p_.V = take("V", p_.G, p_.S, p_.Dv);
    }
    maybe_W_O();
    draw_mask_tensor();
    settle_dtypes();
  }

  Shape with_batch(std::size_t rows, std::size_t width) const {
    return rank_ == 2 ? Shape{rows, width} : Shape{p_.B, rows, width};
  }

  struct Weights {
    bool has_W = false, has_b = false, integer = true;
    Reals W, b;
  };

  Weights draw_weights(const std::string& suffix, std::size_t rows, std::size_t columns) {
    Weights weights;
    weights.has_W = !identity_ || chance(0.5);
    weights.has_b = chance(0.3);
    if (weights.has_W) {
      weights.W = draw("W_" + suffix, {rows, columns}).values;
      weights.integer = was_integer_;
    }
    if (weights.has_b) {
      weights.b = draw("b_" + suffix, {columns}).values;
      weights.integer = weights.integer && was_integer_;
    }
    return weights;
  }

  Numbers projected(const Numbers& x, bool x_integer, const Weights& w, std::size_t N,
                    std::size_t width_in, std::size_t heads, std::size_t width) {
    const bool exact = (x_integer && w.integer) || (!w.has_W && !w.has_b);
    const Numbers y = oracle::project(x, w.has_W ? &w.W : nullptr, w.has_b ? &w.b : nullptr,
                                      width_in, heads * width, exact ? 0 : p_.u);
    return oracle::split(y, p_.B, N, heads, width);
  }

  void draw_projected() {
    Numbers inputs = draw("embeddings", with_batch(p_.L, M_));
    bool inputs_integer = was_integer_;
    Numbers memory;
    if (source_ == Source::cross) memory = draw("memory", with_batch(p_.S, Mk_));
    bool memory_integer = was_integer_;
    const Weights q = draw_weights("Q", M_, p_.H * p_.D), k = draw_weights("K", Mk_, p_.G * p_.D),
                  v = draw_weights("V", Mk_, p_.G * p_.Dv);
    maybe_W_O();
    draw_mask_tensor();
    settle_dtypes();
    if (chance(0.4)) {
      add_positions(inputs);
      inputs_integer = false;
    }
    expect("inputs", rows_of(inputs, p_.B, M_), with_batch(p_.rows.size(), M_));
    if (source_ == Source::self) memory = inputs, memory_integer = inputs_integer;
    p_.Q = projected(inputs, inputs_integer, q, p_.L, M_, p_.H, p_.D);
    p_.K = projected(memory, memory_integer, k, p_.S, Mk_, p_.G, p_.D);
    p_.V = projected(memory, memory_integer, v, p_.S, Mk_, p_.G, p_.Dv);
    p_.exact_scores = inputs_integer && memory_integer && q.integer && k.integer;
  }

  /// The selected rows of (matrices, L, width).
  Numbers rows_of(const Numbers& all, std::size_t matrices, std::size_t width) const {
    Numbers chosen{{}, all.error};
    for (std::size_t matrix = 0; matrix < matrices; ++matrix)
      for (const std::size_t row : p_.rows)
        for (std::size_t m = 0; m < width; ++m)
          chosen.values.push_back(all.values[(matrix * p_.L + row) * width + m]);
    return chosen;
  }

  void add_positions(Numbers& inputs) {
    Position& position = result_.options.position;
    position = random_position(dice_);
    if (result_.options.score == Score::cosine) position.last_column_zero = false;  // 0 / 0
    const Numbers waves = oracle::positions(position, p_.L, M_);
    inputs = oracle::add_positions(inputs, waves, position, p_.L, M_, p_.u);
    Numbers shown = rows_of(waves, 1, M_);
    shown.error += p_.u;
    expect("positions", shown, {p_.rows.size(), M_});
  }

  void maybe_W_O() {
    if (!chance(0.4)) return;
    Mo_ = one_of({1, 3});
    W_O_ = draw("W_O", {p_.H * p_.Dv, Mo_}).values;
    if (chance(0.5)) b_O_ = draw("b_O", {Mo_}).values;
  }

  /// Sets the mask's shape as given, `mask_shape_`, and with four axes, `mask4_`.
  void choose_mask_shape() {
    const Shape full = {p_.B, p_.H, p_.L, p_.S};
    mask4_ = full;
    for (std::size_t& axis : mask4_)
      if (chance(0.4)) axis = 1;
    mask_shape_ = mask4_;
    if (!with_heads_ && chance(0.5)) {  // (B, L, S): the inputs have no head axis
      mask4_[1] = 1;
      mask_shape_ = {mask4_[0], mask4_[2], mask4_[3]};
      return;
    }
    const std::size_t rank = one_of({1, 2, with_heads_ ? 3u : 2u, 4});
    for (std::size_t axis = 0; axis + rank < 4; ++axis) mask4_[axis] = 1;
    mask_shape_ = Shape(mask4_.end() - static_cast<std::ptrdiff_t>(rank), mask4_.end());
  }

  void draw_mask_tensor() {
    const std::size_t kind = one_of({0, 0, 0, 1, 1, 2, 2, 3});
    if (kind == 0) return;
    choose_mask_shape();
    Tensor mask(DType::f64, mask_shape_);
    additive_ = kind == 2;
    for (double& value : mask.mutable_data<double>()) {
      value = chance(0.3) ? 0 : 1;
      if (additive_)
        value = chance(0.2) ? -std::numeric_limits<double>::infinity()
                            : static_cast<double>(dice_.random() % 64) / 8 - 4;
    }
    const std::vector<double> values = doubles_of(mask);
    mask_.assign(values.begin(), values.end());
    all_integers_ = all_integers_ && !additive_;
    const DType dtype = kind == 1 ? DType::boolean : kind == 3 ? DType::u8 : floats_;
    if (!additive_ && chance(0.3)) result_.options.mask_polarity = MaskPolarity::ignore;
    result_.tensors.set("mask", cast(mask, dtype));
  }

  void spread_mask() {
    p_.options = result_.options;
    if (!result_.tensors.contains("mask")) return;
    const Reals mask = oracle::broadcast(mask_, mask4_, {p_.B, p_.H, p_.L, p_.S});
    if (additive_) p_.bias = mask;
    const bool attend = result_.options.mask_polarity == MaskPolarity::attend;
    for (std::size_t i = 0; i < mask.size() && !additive_; ++i)
      p_.visible.push_back((mask[i] != 0) == attend);
  }

  void expect(const std::string& name, const Numbers& numbers, const Shape& shape) {
    Expected expected = oracle::expected(numbers, shape, result_u_);
    if (result_.result == DType::f16) expected.bound += 0x1p-24;  // subnormals
    result_.expected.emplace_back(name, expected);
  }

  /// The axes of a per-head result in the rank of the inputs.
  Shape per_head(std::size_t heads, Shape rest) const {
    if (with_heads_) rest.insert(rest.begin(), heads);
    if (rank_ != 2) rest.insert(rest.begin(), p_.B);
    return rest;
  }

  void expect_stages() {
    const std::size_t R = p_.rows.size();
    const Numbers queries = rows_of(p_.Q, p_.B * p_.H, p_.D);
    expect("queries", queries, per_head(p_.H, {R, p_.D}));
    expect("keys", p_.K, per_head(p_.G, {p_.S, p_.D}));
    expect("values", p_.V, per_head(p_.G, {p_.S, p_.Dv}));
    solution_ = oracle::solve(p_);
    expect("scores", solution_.scores, per_head(p_.H, {R, p_.S}));
    expect("scaled_scores", solution_.scaled_scores, per_head(p_.H, {R, p_.S}));
    expect("masked_scores", solution_.masked_scores, per_head(p_.H, {R, p_.S}));
    expect("weights", solution_.weights, per_head(p_.H, {R, p_.S}));
    expect("logsumexp", solution_.logsumexp, per_head(p_.H, {R}));
    expect("head_context", solution_.head_context, per_head(p_.H, {R, p_.Dv}));
  }

  void expect_output() {
    const std::size_t R = p_.rows.size();
    const Numbers packed = oracle::join(solution_.head_context, p_.B, R, p_.H, p_.Dv);
    if (rank_ != 4)
      expect("context", packed, with_batch(R, p_.H * p_.Dv));
    else if (result_.options.layout == Layout::bhld)
      expect("context", solution_.head_context, {p_.B, p_.H, R, p_.Dv});
    else
      expect("context", packed, {p_.B, R, p_.H, p_.Dv});
    if (W_O_.empty()) return;
    const Numbers output =
        oracle::project(packed, &W_O_, b_O_.empty() ? nullptr : &b_O_, p_.H * p_.Dv, Mo_, p_.u);
    expect("output", output, rank_ == 2 ? Shape{R, Mo_} : Shape{p_.B, R, Mo_});
  }

  Dice dice_;
  OracleCase result_;
  oracle::Problem p_;
  oracle::Solution solution_;
  std::size_t rank_ = 2, M_ = 0, Mk_ = 0, Mo_ = 0;
  Source source_ = Source::given;
  bool with_heads_ = false, identity_ = false, additive_ = false;
  bool all_integers_ = true, was_integer_ = false;
  double integer_chance_ = 0;
  DType floats_ = DType::f64;
  Compute compute_ = Compute::automatic;
  long double result_u_ = 0;
  Reals W_O_, b_O_, mask_;
  Shape mask_shape_, mask4_;
};

}  // namespace

OracleCase oracle_case(std::uint64_t seed) { return Draw(seed).run(); }

std::uint64_t number_of_cases(std::uint64_t all) { return test::is_limited() ? all / 4 : all; }
