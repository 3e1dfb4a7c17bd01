// attn compare: how far the tensors of one file are from those of another.
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "attn/cli/command.h"
#include "attn/cli/tensors_of.h"
#include "attn/io/json.h"
#include "attn/report/comparison.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

struct CompareArgs {
  std::string a, b;
  std::optional<double> rtol, atol;
  std::optional<std::int64_t> ulps;
  bool equal_nan = false, json = false;
};

/// With --ulp alone, tolerances are 0: distance in ulps decides. Beside --rtol or --atol, an
/// element that keeps either of the two is close.
Tolerance tolerance_of(const CompareArgs& args) {
  Tolerance tolerance;
  tolerance.rtol = args.rtol.value_or(args.ulps ? 0 : tolerance.rtol);
  tolerance.atol = args.atol.value_or(tolerance.atol);
  if (args.ulps) tolerance.ulps = static_cast<double>(*args.ulps);
  tolerance.equal_nan = args.equal_nan;
  return tolerance;
}

/// Two tensors of one name.
struct Couple {
  std::string name;
  Tensor a, b;
  Comparison found;
};

/// What both files hold together, in A's order.
struct Report {
  std::vector<Couple> couples;
  std::vector<std::string> only_in_a, only_in_b;

  bool same() const {
    return only_in_a.empty() && only_in_b.empty() &&
           std::all_of(couples.begin(), couples.end(),
                       [](const Couple& couple) { return couple.found.same(); });
  }
};

/// A tensor without a name can only be compared with one that stands alone, too.
void refuse_nameless(const TensorMap& one, const std::string& one_name, const TensorMap& other,
                     const std::string& other_name) {
  if (!one.contains("") || other.size() == 1) return;
  std::string names;
  for (const std::string& name : other.names()) names += (names.empty() ? "" : ", ") + name;
  throw Error(ErrorKind::usage, printable(one_name) + " holds one tensor without a name, " +
                                    printable(other_name) + " holds " +
                                    std::to_string(other.size()) + ": choose one, " +
                                    printable(other_name) + "#NAME of " + printable(names));
}

Report compare_all(const TensorMap& a, const TensorMap& b, const Tolerance& tolerance) {
  Report report;
  if (a.size() == 1 && b.size() == 1) {
    const auto& [name, tensor] = *a.begin();
    const Tensor& other = b.begin()->second;
    const std::string shown = name.empty() ? b.begin()->first : name;
    report.couples.push_back({shown, tensor, other, compare(tensor, other, tolerance)});
    return report;
  }
  for (const auto& [name, tensor] : a) {
    if (const Tensor* other = b.find(name))
      report.couples.push_back({name, tensor, *other, compare(tensor, *other, tolerance)});
    else
      report.only_in_a.push_back(name);
  }
  for (const auto& [name, tensor] : b)
    if (!a.contains(name)) report.only_in_b.push_back(name);
  return report;
}

std::string as_text(const Report& report) {
  std::string text;
  std::size_t same = 0;
  for (const Couple& couple : report.couples) {
    const std::string name = couple.name.empty() ? "-" : printable(couple.name);
    text += comparison_text(name, couple.a, couple.b, couple.found);
    same += couple.found.same() ? 1 : 0;
  }
  for (const std::string& name : report.only_in_a) text += printable(name) + ": in A only\n";
  for (const std::string& name : report.only_in_b) text += printable(name) + ": in B only\n";
  const std::size_t all = report.couples.size() + report.only_in_a.size() + report.only_in_b.size();
  return text + std::to_string(same) + " of " + std::to_string(all) +
         (all == 1 ? " tensor is" : " tensors are") + " the same\n";
}

Json count(std::size_t number) { return Json{static_cast<std::int64_t>(number)}; }

Json element(const Tensor& tensor, std::size_t at) {
  return parse_json(to_json(tensor.reshaped({tensor.size()}).at(at), -1), "element");
}

Json place(std::size_t at, const Couple& couple) {
  const Shape index = index_of(at, couple.a.shape());
  return Json{JsonIntegers(index.begin(), index.end())};
}

Json extreme(const std::optional<Extreme>& extreme, const Couple& couple) {
  if (!extreme) return Json{};
  return Json{JsonObject{{"value", Json{extreme->value}},
                         {"at", place(extreme->at, couple)},
                         {"a", element(couple.a, extreme->at)},
                         {"b", element(couple.b, extreme->at)}}};
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

Json couple_json(const Couple& couple) {
  const Comparison& found = couple.found;
  JsonObject object = {{"name", couple.name.empty() ? Json{} : Json{couple.name}},
                       {"same", Json{found.same()}},
                       {"a", side(couple.a)},
                       {"b", side(couple.b)}};
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
  return Json{std::move(object)};
}

Json strings(const std::vector<std::string>& words) {
  JsonArray array;
  for (const std::string& word : words) array.push_back(Json{word});
  return Json{std::move(array)};
}

std::string as_json(const Report& report, const Tolerance& tolerance) {
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

int run_compare(const CompareArgs& args) {
  const TensorRef ref_a = parse_tensor_ref(args.a), ref_b = parse_tensor_ref(args.b);
  TensorFiles files(ReadLimits{.access = FileAccess::map});
  const TensorMap a = tensors_of(ref_a, files), b = tensors_of(ref_b, files);
  refuse_nameless(a, args.a, b, args.b);
  refuse_nameless(b, args.b, a, args.a);
  const Tolerance tolerance = tolerance_of(args);
  const Report report = compare_all(a, b, tolerance);
  files.require_unchanged();
  print(args.json ? as_json(report, tolerance) : as_text(report));
  return report.same() ? 0 : 1;
}

}  // namespace

Action add_compare(CLI::App& app) {
  const auto args = std::make_shared<CompareArgs>();
  app.description(
      "Says how far the tensors of A are from those of B, which is right. An element is close "
      "when\n"
      "|a - b| <= atol + rtol |b|. Exit code 0: all are close; 1: something differs.\n\n"
      "Example:\n"
      "  attn compare result.npz expected.npz --rtol 1e-5\n"
      "  attn compare mine.npy result.npz#weights --ulp 4");
  app.add_option("A", args->a, "FILE or FILE#NAME; - is standard input")->required();
  app.add_option("B", args->b, "the same: what A is held to")->required();
  app.add_option("--rtol", args->rtol, "relative tolerance; default: 1e-7, with --ulp 0")
      ->check(CLI::NonNegativeNumber)
      ->type_name("X");
  app.add_option("--atol", args->atol, "absolute tolerance; default: 0")
      ->check(CLI::NonNegativeNumber)
      ->type_name("X");
  app.add_option("--ulp", args->ulps, "as close: at most N representable values apart")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  app.add_flag("--equal-nan", args->equal_nan, "NaN is close to NaN; without, to nothing");
  app.add_flag("--json", args->json, "one JSON object, on one line");
  return [args] { return run_compare(*args); };
}

}  // namespace attn
