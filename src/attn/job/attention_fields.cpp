#include "attn/job/field_tables.h"

namespace attn {
namespace {

void apply_scale(const Json& value, Options& options) {
  const std::string* given = word_of(value);
  if (given == nullptr)
    options.scale = {Scale::Kind::number, number_of(value)};
  else
    options.scale = {*given == "auto" ? Scale::Kind::automatic : Scale::Kind::none, 1};
}

void apply_causal(const Json& value, Options& options) {
  const std::string* given = word_of(value);
  options.causal = given != nullptr || *value.get<bool>();
  if (given != nullptr)
    options.alignment = *given == "top-left" ? Alignment::top_left : Alignment::bottom_right;
}

}  // namespace

std::vector<Field> attention_fields() {
  return {
      {.key = "heads",
       .flag = "--heads",
       .form = FieldForm::integer,
       .placeholder = "H",
       .what = "query heads: columns are split into H equal parts",
       .minimum = 1,
       .apply = [](const Json& v, Options& o) { o.heads = integer_of(v); }},
      {.key = "kv_heads",
       .flag = "--kv-heads",
       .form = FieldForm::integer,
       .placeholder = "G",
       .what = "key/value heads, each shared by H/G query heads; default: H",
       .minimum = 1,
       .apply = [](const Json& v, Options& o) { o.kv_heads = integer_of(v); }},
      choice<Layout>("layout", "--layout", "axes of 4-D queries, keys and values",
                     {{"bhld", Layout::bhld}, {"blhd", Layout::blhd}},
                     [](Options& o) -> Layout& { return o.layout; }),
      choice<bool>("batch_axis", "--batch-axis", "where 3-D inputs and results have the batch",
                   {{"first", false}, {"second", true}},
                   [](Options& o) -> bool& { return o.batch_second; }),
      choice<Score>("score", "--score", "score function",
                    {{"dot", Score::dot},
                     {"cosine", Score::cosine},
                     {"l2", Score::l2},
                     {"general", Score::general},
                     {"additive", Score::additive},
                     {"concat", Score::concat}},
                    [](Options& o) -> Score& { return o.score; }),
      {.key = "scale",
       .flag = "--scale",
       .form = FieldForm::number,
       .placeholder = "X",
       .what = "factor on the scores: auto is 1/sqrt(D), none is 1, or a number",
       .words = {"auto", "none"},
       .apply = apply_scale},
      number_field("softcap", "--softcap", "bound scaled scores to (-X, X): X tanh(s / X); 0: none",
                   0, [](Options& o) -> double& { return o.softcap; }),
      choice<SoftcapOrder>(
          "softcap_order", "--softcap-order", "when the softcap bounds the scores",
          {{"before-mask", SoftcapOrder::before_mask}, {"after-mask", SoftcapOrder::after_mask}},
          [](Options& o) -> SoftcapOrder& { return o.softcap_order; }),
      switch_field("alibi", "--alibi", "lower scores with distance, by the standard slopes",
                   [](Options& o) -> bool& { return o.alibi; }),
      choice<RelativeBias::Direction>(
          "relative.direction", "--relative-direction",
          "which way relative_bias tells distances apart; auto: past where causal",
          {{"auto", RelativeBias::Direction::automatic},
           {"both", RelativeBias::Direction::both},
           {"past", RelativeBias::Direction::past}},
          [](Options& o) -> RelativeBias::Direction& { return o.relative.direction; }),
      {.key = "relative.max_distance",
       .flag = "--relative-max-distance",
       .form = FieldForm::integer,
       .placeholder = "N",
       .what = "from here on all distances share a bucket; default: 128",
       .minimum = 1,
       .apply = [](const Json& v, Options& o) { o.relative.max_distance = integer_of(v); }},
      switch_field("zero_key", "--zero-key", "one more key and value of zeros behind all others",
                   [](Options& o) -> bool& { return o.zero_key; }),
      {.key = "causal",
       .flag = "--causal",
       .form = FieldForm::boolean,
       .placeholder = "",
       .what = "query i sees keys j <= i + offset; =top-left, =bottom-right set the alignment, too",
       .words = {"top-left", "bottom-right"},
       .apply = apply_causal},
      choice<Alignment>(
          "alignment", "--alignment", "offset of causality and window: the past's keys, or S - L",
          {{"top-left", Alignment::top_left}, {"bottom-right", Alignment::bottom_right}},
          [](Options& o) -> Alignment& { return o.alignment; }),
      {.key = "window",
       .flag = "--window",
       .form = FieldForm::integers,
       .placeholder = "LEFT,RIGHT",
       .what = "query i sees keys i+offset-LEFT to i+offset+RIGHT only; -1 is open",
       .minimum = -1,
       .length = 2,
       .apply =
           [](const Json& v, Options& o) {
             o.window = {integers_of(v)[0], integers_of(v)[1]};
           }},
      choice<MaskPolarity>("mask_polarity", "--mask-polarity", "what true in a boolean mask means",
                           {{"attend", MaskPolarity::attend}, {"ignore", MaskPolarity::ignore}},
                           [](Options& o) -> MaskPolarity& { return o.mask_polarity; }),
      choice<ShortMask>("short_mask", "--short-mask",
                        "of a mask with fewer columns than keys, the keys beyond",
                        {{"refuse", ShortMask::refuse}, {"hide", ShortMask::hide}},
                        [](Options& o) -> ShortMask& { return o.short_mask; }),
      choice<EmptyRows>(
          "empty_rows", "--empty-rows", "weights of a query that sees no key",
          {{"zero", EmptyRows::zero}, {"uniform", EmptyRows::uniform}, {"nan", EmptyRows::nan}},
          [](Options& o) -> EmptyRows& { return o.empty_rows; }),
      choice<Normaliser>("normaliser", "--normaliser", "how scores become weights",
                         {{"softmax", Normaliser::softmax},
                          {"sparsemax", Normaliser::sparsemax},
                          {"entmax15", Normaliser::entmax15},
                          {"hardmax", Normaliser::hardmax},
                          {"sigmoid", Normaliser::sigmoid},
                          {"top_k", Normaliser::top_k},
                          {"none", Normaliser::none}},
                         [](Options& o) -> Normaliser& { return o.normaliser; }),
      {.key = "top_k",
       .flag = "--top-k",
       .form = FieldForm::integer,
       .placeholder = "K",
       .what = "keys that normaliser top_k weighs, the largest scores",
       .minimum = 1,
       .apply = [](const Json& v, Options& o) { o.top_k = integer_of(v); }},
      above(number_field("temperature", "--temperature", "divides the scores that are normalised",
                         0, [](Options& o) -> double& { return o.temperature; })),
      choice<SoftmaxAxis>("softmax.axis", "--softmax-axis",
                          "softmax over each query's keys, or the whole matrix",
                          {{"keys", SoftmaxAxis::keys}, {"all", SoftmaxAxis::all}},
                          [](Options& o) -> SoftmaxAxis& { return o.softmax_axis; }),
      choice<SoftmaxPrecision>("softmax.precision", "--softmax-precision",
                               "precision of the softmax alone",
                               {{"auto", SoftmaxPrecision::automatic},
                                {"f16", SoftmaxPrecision::f16},
                                {"bf16", SoftmaxPrecision::bf16},
                                {"f32", SoftmaxPrecision::f32},
                                {"f64", SoftmaxPrecision::f64}},
                               [](Options& o) -> SoftmaxPrecision& { return o.softmax_precision; }),
      {.key = "rows",
       .flag = "--rows",
       .form = FieldForm::integers,
       .placeholder = "I,J,...",
       .what = "compute these queries only; negative counts from the end",
       .apply = [](const Json& v, Options& o) { o.rows = integers_of(v); }},
      choice<Compute>("compute", "--compute", "precision of the arithmetic",
                      {{"auto", Compute::automatic}, {"f32", Compute::f32}, {"f64", Compute::f64}},
                      [](Options& o) -> Compute& { return o.compute; }),
      choice<Path>("path", "--path", "which code computes: the fast kernels where they can, or not",
                   {{"auto", Path::automatic}, {"reference", Path::reference}},
                   [](Options& o) -> Path& { return o.path; }),
  };
}

}  // namespace attn
