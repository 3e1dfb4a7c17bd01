#include "attn/base/suggestion.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <iterator>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "attn/base/text.h"

namespace attn {
namespace {

using Names = std::vector<std::string>;

constexpr std::size_t kMaxSuggested = 3;

/// The parts of a name between separators, in lower case and without leading dashes: "k", "proj" of
/// "--K-proj".
Names parts_of(std::string_view name) {
  Names parts = {""};
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::string_view("-_. /").find(c) == std::string_view::npos)
      parts.back() += static_cast<char>(byte < 0x80 ? std::tolower(byte) : c);
    else if (!parts.back().empty())
      parts.emplace_back();
  }
  if (parts.back().empty()) parts.pop_back();
  return parts;
}

std::string joined(const Names& parts) { return join(parts, ""); }

/// A word and the known names, split once.
struct Lookup {
  Names word;
  std::string whole;  ///< the word without separators
  const Names& known;
  std::vector<Names> parts = {};  ///< of the known names

  Lookup(const std::string& typed, const Names& names)
      : word(parts_of(typed)), whole(joined(word)), known(names) {
    for (const std::string& name : known) parts.push_back(parts_of(name));
  }

  /// The known names whose parts satisfy the predicate, without repetitions.
  template <class Predicate>
  Names where(const Predicate& is_similar) const {
    Names found;
    for (std::size_t i = 0; i < known.size(); ++i)
      if (is_similar(parts[i]) && std::find(found.begin(), found.end(), known[i]) == found.end())
        found.push_back(known[i]);
    return found;
  }
};

/// "keys" and "key"; not "loss" or "bias".
std::string singular(const std::string& part) {
  constexpr std::size_t kMinLength = 4;
  const bool is_plural = part.size() >= kMinLength && part.back() == 's' &&
                         std::string_view("sui").find(part[part.size() - 2]) == std::string::npos;
  return is_plural && !part.ends_with("bias") ? part.substr(0, part.size() - 1) : part;
}

/// The parts that distinguish the name from others, in the singular and in alphabetical order.
Names distinctive(const Names& parts) {
  static const Names fillers = {"attn", "attention", "self", "is",     "use",
                                "the",  "tensor",    "file", "matrix", "path"};
  Names kept;
  for (const std::string& part : parts)
    if (std::find(fillers.begin(), fillers.end(), part) == fillers.end())
      kept.push_back(singular(part));
  std::sort(kept.begin(), kept.end());
  return kept;
}

/// Optimal string alignment distance: insertions, deletions, substitutions and transpositions.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  std::iota(previous.begin(), previous.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, previous[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        current[j] = std::min(current[j], before[j - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

std::string digits_of(const std::string& text) {
  std::string digits;
  std::copy_if(text.begin(), text.end(), std::back_inserter(digits),
               [](unsigned char c) { return std::isdigit(c) != 0; });
  return digits;
}

constexpr std::size_t kUnlike = 100;  ///< a distance

/// The number of typing errors in a word; kUnlike if there are too many for its length, or if its
/// numbers differ. A name without vowels is a code, of which every letter counts: bhld, npy.
std::size_t typing_errors(const std::string& word, const std::string& name) {
  if (word == name) return 0;
  const std::size_t shorter = std::min(word.size(), name.size()),
                    longer = std::max(word.size(), name.size());
  const std::size_t most = shorter < 3 ? 0 : shorter < 9 ? 1 : 2;
  if (longer - shorter > most || digits_of(word) != digits_of(name) ||
      name.find_first_of("aeiou") == std::string::npos)
    return kUnlike;
  const std::size_t distance = edit_distance(word, name);
  return distance <= most ? distance : kUnlike;
}

bool has_short_part(const Names& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [](const std::string& part) { return part.size() < 3; });
}

/// Counts the errors by part, so that no short part is replaced: d_model is not model.
std::size_t typing_errors(const Names& word, const Names& name) {
  if (word.size() != name.size())
    return has_short_part(word) || has_short_part(name) ? kUnlike
                                                        : typing_errors(joined(word), joined(name));
  return std::transform_reduce(
      word.begin(), word.end(), name.begin(), std::size_t{0},
      [](std::size_t x, std::size_t y) { return std::min(kUnlike, x + y); },
      [](const std::string& x, const std::string& y) { return typing_errors(x, y); });
}

// Each of these functions returns similar names by one criterion.

Names by_spelling(const Lookup& lookup) {
  return lookup.where([&](const Names& parts) { return joined(parts) == lookup.whole; });
}

Names by_distinctive_parts(const Lookup& lookup) {
  const Names wanted = distinctive(lookup.word);
  if (wanted.empty()) return {};
  return lookup.where([&](const Names& parts) { return distinctive(parts) == wanted; });
}

Names by_typing_errors(const Lookup& lookup) {
  std::size_t least = kUnlike;
  for (const Names& parts : lookup.parts)
    least = std::min(least, typing_errors(lookup.word, parts));
  if (least >= kUnlike) return {};
  return lookup.where(
      [&](const Names& parts) { return typing_errors(lookup.word, parts) == least; });
}

/// Longer names that begin with the word, or end with its parts.
Names by_beginning_or_end(const Lookup& lookup) {
  constexpr std::size_t kMinLength = 4;
  if (lookup.whole.size() < kMinLength) return {};
  return lookup.where([&](const Names& parts) {
    const auto count = static_cast<std::ptrdiff_t>(lookup.word.size());
    return joined(parts).starts_with(lookup.whole) ||
           (parts.size() > lookup.word.size() &&
            std::equal(lookup.word.begin(), lookup.word.end(), parts.end() - count));
  });
}

Names similar_spellings(const Lookup& lookup) {
  for (const auto similar :
       {by_spelling, by_distinctive_parts, by_typing_errors, by_beginning_or_end})
    if (Names names = similar(lookup); !names.empty())
      return names.size() <= kMaxSuggested ? names : Names{};
  return {};
}

/// A known name, and what to write and to know with it.
struct Suggested {
  std::string name;
  std::string_view value = "", note = "";
};

bool is_of_kind(NameKind row, NameKind wanted) {
  if (wanted == NameKind::tensor) return row == NameKind::input || row == NameKind::output;
  return row == wanted;
}

bool lists(std::string_view words, const std::string& whole) {
  for (std::size_t start = 0; start < words.size();) {
    const std::size_t end = std::min(words.find(' ', start), words.size());
    if (joined(parts_of(words.substr(start, end - start))) == whole) return true;
    start = end + 1;
  }
  return false;
}

std::vector<Suggested> by_other_name(const Lookup& lookup, NameKind kind) {
  std::vector<Suggested> found;
  for (const OtherName& row : other_names()) {
    if (!is_of_kind(row.kind, kind) || !lists(row.others, lookup.whole)) continue;
    const std::string ours = joined(parts_of(row.ours));
    const Names names = lookup.where([&](const Names& parts) { return joined(parts) == ours; });
    if (!names.empty()) found.push_back({names[0], row.value, row.note});
  }
  return found;
}

/// Tensors of a file that another program named: out, if the word is context.
Names named_otherwise(const Lookup& lookup) {
  std::vector<std::string_view> others;
  for (const OtherName& row : other_names())
    if (is_of_kind(row.kind, NameKind::tensor) && row.value[0] == '\0' &&
        joined(parts_of(row.ours)) == lookup.whole)
      others.push_back(row.others);
  if (others.empty()) return {};
  return lookup.where([&](const Names& parts) {
    return std::any_of(
        others.begin(), others.end(),
        [&, name = joined(parts)](std::string_view all) { return lists(all, name); });
  });
}

std::vector<Suggested> suggested(const std::string& word, const Names& known, NameKind kind) {
  constexpr std::size_t kMaxWord = 100;
  if (word.size() > kMaxWord) return {};
  const Lookup lookup(word, known);
  if (lookup.word.empty()) return {};
  std::vector<Suggested> found = by_other_name(lookup, kind);
  if (!found.empty()) return found;
  Names names = similar_spellings(lookup);
  if (names.empty() && kind == NameKind::tensor) names = named_otherwise(lookup);
  for (std::string& name : names) found.push_back({std::move(name)});
  return found.empty() && kind == NameKind::output ? by_other_name(lookup, NameKind::input) : found;
}

/// "'--outputs weights'", or "\"outputs\": \"weights\"" in a job.
std::string text_of(const Suggested& one, NameKind kind) {
  const std::string value(one.value), note(one.note);
  const bool is_typed = one.name.starts_with("--") || kind == NameKind::command;
  const std::string text = value.empty() ? "'" + one.name + "'"
                           : is_typed    ? "'" + one.name + " " + value + "'"
                                         : "\"" + one.name + "\": \"" + value + "\"";
  return text + (note.empty() ? "" : " ") + note;
}

}  // namespace

Names similar_names(const std::string& word, const Names& known, NameKind kind) {
  Names names;
  for (const Suggested& one : suggested(word, known, kind))
    if (std::find(names.begin(), names.end(), one.name) == names.end()) names.push_back(one.name);
  return names;
}

std::string nearest(const std::string& word, const Names& known, NameKind kind) {
  const Names names = similar_names(word, known, kind);
  return names.size() == 1 ? names[0] : "";
}

std::string our_name(const std::string& word, NameKind kind) {
  const std::string whole = joined(parts_of(word));
  std::string meaning;
  for (const OtherName& row : other_names()) {
    if (whole.empty() || !is_of_kind(row.kind, kind) || !lists(row.others, whole)) continue;
    if (!meaning.empty() || row.value[0] != '\0' || row.note[0] != '\0') return "";
    meaning = row.ours;
  }
  return meaning;
}

std::string did_you_mean(const std::string& word, const Names& known, NameKind kind) {
  Names texts;
  for (const Suggested& one : suggested(word, known, kind)) texts.push_back(text_of(one, kind));
  return texts.empty() ? "" : " (did you mean " + join_or(texts) + "?)";
}

}  // namespace attn
