#include "support/oracle_options.h"

using namespace attn;

Options random_options(Dice& dice, bool cosine) {
  Options o;
  o.layout = dice.chance(0.5) ? Layout::bhld : Layout::blhd;
  const std::size_t causal = dice.one_of({0, 0, 1, 2});
  o.causal = causal > 0;
  if (causal == 2) o.alignment = Alignment::bottom_right;
  if (dice.chance(0.3)) o.window.left = static_cast<std::int64_t>(dice.one_of({0, 1, 3}));
  if (dice.chance(0.3)) o.window.right = static_cast<std::int64_t>(dice.one_of({0, 1, 2}));
  if (dice.chance(0.3)) o.softcap = dice.chance(0.5) ? 2.5 : 0.5;
  if (cosine && dice.chance(0.2)) o.score = Score::cosine;
  o.scale.kind = static_cast<Scale::Kind>(dice.one_of({0, 0, 1, 2}));
  if (o.scale.kind == Scale::Kind::number) o.scale.number = dice.chance(0.5) ? 0.75 : -0.5;
  if (dice.chance(0.2)) o.softmax_axis = SoftmaxAxis::all;
  o.empty_rows = dice.chance(0.5) ? EmptyRows::zero : EmptyRows::uniform;
  return o;
}

Position random_position(Dice& dice) {
  Position position;
  position.kind = Position::Kind::sinusoidal;
  position.base = dice.chance(0.5) ? 10000 : 100;
  position.first = dice.chance(0.5) ? 1 : 0;
  position.exponent = dice.chance(0.5) ? Position::Exponent::standard : Position::Exponent::doubled;
  position.last_column_zero = dice.chance(0.5);
  position.embedding_scale_sqrt = dice.chance(0.3);
  if (dice.chance(0.3)) position.embedding_scale = 0.5;
  return position;
}
