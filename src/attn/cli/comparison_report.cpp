#include "attn/cli/comparison_report.h"

#include "attn/base/text.h"
#include "attn/io/json_parse.h"
#include "attn/io/json_write.h"
#include "attn/report/comparison.h"

namespace attn {
namespace {

Json count(std::size_t number) { return Json{static_cast<std::int64_t>(number)}; }

Json element(const Tensor& tensor, std::size_t at) {
  return parse_json(to_json(tensor.reshaped({tensor.size()}).at(at), -1), "element");
}

Json place(std::size_t at, const Couple& couple) {
  const Shape index = index_of(at, couple.compared.a.shape());
  return Json{JsonIntegers(index.begin(), index.end())};
}

Json extreme(const std::optional<Extreme>& extreme, const Couple& couple) {
  if (!extreme) return Json{};
  return Json{JsonObject{{"value", Json{extreme->value}},
                         {"at", place(extreme->at, couple)},
                         {"a", element(couple.compared.a, extreme->at)},
                         {"b", element(couple.compared.b, extreme->at)}}};
}

Json number(const std::optional<double>& value) { return value ? Json{*value} : Json{}; }

Json side(const Tensor& tensor) {
  const Shape& shape = tensor.shape();
  return Json{JsonObject{{"dtype", Json{std::string(name_of(tensor.dtype()))}},
                         {"shape", Json{JsonIntegers(shape.begin(), shape.end())}}}};
}

Json histogram(const Comparison& found) {
  JsonArray decades;
  for (const auto& [exponent, pairs] : found.decades)
    decades.push_back(
        Json{JsonObject{{"decade", Json{std::int64_t{exponent}}}, {"count", count(pairs)}}});
  return Json{JsonObject{{"equal", count(found.equal)},
                         {"decades", Json{std::move(decades)}},
                         {"infinite", count(found.infinitely_apart)}}};
}

/// The element with the largest error relative to its bound: the ratio, its index, both values and
/// the bound.
Json of_bound(const Couple& couple) {
  const std::optional<Extreme>& worst = couple.found.max_of_bound;
  Json object = extreme(worst, couple);
  if (worst)
    std::get<JsonObject>(object.value)
        .emplace_back("bound", Json{couple.compared.bounds->data<double>()[worst->at]});
  return object;
}

Json couple_json(const Couple& couple) {
  const Comparison& found = couple.found;
  const std::string& name = couple.compared.name;
  JsonObject object = {{"name", name.empty() ? Json{} : Json{name}},
                       {"same", Json{found.same()}},
                       {"a", side(couple.compared.a)},
                       {"b", side(couple.compared.b)}};
  if (!found.same_shape) return Json{std::move(object)};
  const JsonObject nan = {{"both", count(found.nan_in_both)},
                          {"a_only", count(found.nan_in_a)},
                          {"b_only", count(found.nan_in_b)},
                          {"first", found.first_nan ? place(*found.first_nan, couple) : Json{}}};
  const JsonObject more = {{"elements", count(found.elements)},
                           {"differing", count(found.differing)},
                           {"max_abs", extreme(found.max_abs, couple)},
                           {"max_rel", extreme(found.max_rel, couple)},
                           {"max_ulps", extreme(found.max_ulps, couple)},
                           {"rms", number(found.rms)},
                           {"cosine", number(found.cosine)},
                           {"nan", Json{nan}},
                           {"histogram", histogram(found)}};
  object.insert(object.end(), more.begin(), more.end());
  if (couple.compared.bounds)
    object.emplace_back("bound", Json{JsonObject{{"of", Json{couple.compared.bound_of}},
                                                 {"worst", of_bound(couple)}}});
  return Json{std::move(object)};
}

Json strings(const std::vector<std::string>& words) {
  JsonArray array;
  for (const std::string& word : words) array.push_back(Json{word});
  return Json{std::move(array)};
}

}  // namespace

std::string report_text(const CompareReport& report) {
  std::string text;
  std::size_t same = 0;
  bool some_close = false;
  for (const Couple& couple : report.couples) {
    Compared compared = couple.compared;
    compared.name = printable(compared.name);
    text += comparison_text(compared, couple.found);
    same += couple.found.same() ? 1 : 0;
    some_close |= couple.found.same() && !couple.found.equal_throughout();
  }
  const std::string alone = report.to_reference ? ": no output of the job\n" : ": in A only\n";
  for (const std::string& name : report.only_in_a) text += printable(name) + alone;
  for (const std::string& name : report.only_in_b) text += printable(name) + ": in B only\n";
  const std::size_t all = report.couples.size() + report.only_in_a.size() + report.only_in_b.size();
  return text + std::to_string(same) + " of " + std::to_string(all) +
         (all == 1 ? " tensor is" : " tensors are") +
         (report.to_reference ? " as expected\n"
          : some_close        ? " the same or close\n"
                              : " the same\n");
}

std::string report_json(const CompareReport& report) {
  const Tolerance& tolerance = report.tolerance;
  JsonArray tensors;
  for (const Couple& couple : report.couples) tensors.push_back(couple_json(couple));
  return to_json(Json{JsonObject{{"same", Json{report.same()}},
                                 {"rtol", Json{tolerance.rtol}},
                                 {"atol", Json{tolerance.atol}},
                                 {"ulp", number(tolerance.ulps)},
                                 {"equal_nan", Json{tolerance.equal_nan}},
                                 {"tensors", Json{std::move(tensors)}},
                                 {"only_in_a", strings(report.only_in_a)},
                                 {"only_in_b", strings(report.only_in_b)}}}) +
         "\n";
}

}  // namespace attn
