#include "attn/base/suggestion.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

// Candidates in this order: equal except for case and separators; a name that another library uses;
// one typing error; a known name that is part of the word (num_heads: heads) or starts with it
// (embed: embeddings); more typing errors.

namespace attn {
namespace {

struct OtherName {
  std::string_view other, ours;
};

/// Names that PyTorch, ONNX, JAX, Hugging Face models and papers use for our outputs, keys and
/// flags. If several of ours are listed, the first known one is used.
constexpr OtherName kOtherNames[] = {
    {"query", "queries"},
    {"query", "q"},
    {"queries", "q"},
    {"key", "keys"},
    {"key", "k"},
    {"keys", "k"},
    {"value", "values"},
    {"value", "v"},
    {"values", "v"},
    {"input", "inputs"},
    {"input", "embeddings"},
    {"inputs", "embeddings"},
    {"x", "embeddings"},
    {"hidden_states", "embeddings"},
    {"encoder_hidden_states", "memory"},
    {"q_proj", "w_q"},
    {"q_proj", "wq"},
    {"k_proj", "w_k"},
    {"k_proj", "wk"},
    {"v_proj", "w_v"},
    {"v_proj", "wv"},
    {"o_proj", "w_o"},
    {"o_proj", "wo"},
    {"out_proj", "w_o"},
    {"out_proj", "wo"},
    {"past_key", "past_k"},
    {"past_value", "past_v"},
    {"present_key", "present_k"},
    {"present_value", "present_v"},
    {"nhead", "heads"},
    {"num_key_value_heads", "kv_heads"},
    {"kv_num_heads", "kv_heads"},
    {"num_query_groups", "kv_heads"},
    {"enable_gqa", "kv_heads"},
    {"key_padding_mask", "key_mask"},
    {"attn_bias", "mask"},
    {"attention_bias", "mask"},
    {"position_bias", "relative_bias"},
    {"causal_mask", "causal"},
    {"unidirectional", "causal"},
    {"logits_soft_cap", "softcap"},
    {"rope", "rotary"},
    {"rope_theta", "rotary_base"},
    {"dtype", "compute"},
    {"logits", "scores"},
    {"attn", "weights"},
    {"attention", "weights"},
    {"attn_probs", "weights"},
    {"attention_probs", "weights"},
    {"average_attn_weights", "mean_weights"},
    {"lse", "logsumexp"},
    {"out", "context"},
    {"o", "context"},
    {"softmax_lse", "logsumexp"},
};

/// Lower case, without leading dashes, with one kind of separator.
std::string plain(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  std::string text(word);
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-' || c == '.' || c == ' ') c = '_';
  }
  return text;
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

using Names = std::vector<std::string>;

/// Each of these functions returns a member of `known`, or "".
std::string by_other_name(const std::string& word, const Names& known) {
  for (const OtherName& row : kOtherNames) {
    if (row.other != word) continue;
    for (const std::string& name : known)
      if (plain(name) == row.ours) return name;
  }
  return "";
}

/// The first name with the smallest distance, if this is at most `most` and less than the length of
/// the word.
std::string by_spelling(const std::string& word, const Names& known, std::size_t most) {
  std::string best;
  std::size_t least = std::min(most + 1, word.size());
  for (const std::string& name : known) {
    const std::string candidate = plain(name);
    // The distance is at least the difference in length.
    if (candidate.size() + least <= word.size() || word.size() + least <= candidate.size())
      continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = name;
    }
  }
  return best;
}

std::string_view without_s(std::string_view word) {
  if (word.size() > 3 && word.ends_with('s')) word.remove_suffix(1);
  return word;
}

/// The end of the name within the word, between separators; 0 if absent. The last part may differ
/// in number: n_head contains heads.
std::size_t end_of_part(const std::string& word, const std::string& name) {
  const std::string parts = "_" + word + "_";
  const std::size_t place = parts.rfind("_" + name + "_");
  if (place != std::string::npos) return place + name.size();
  const bool last =
      ("_" + std::string(without_s(word))).ends_with("_" + std::string(without_s(name)));
  return last ? word.size() : 0;
}

/// The longest of the names that end last in the word: scale for softmax_scale. Ignores names of
/// one or two letters, which are parts of too many words.
std::string by_part(const std::string& word, const Names& known) {
  std::string best;
  std::pair<std::size_t, std::size_t> most;
  for (const std::string& name : known) {
    const std::string candidate = plain(name);
    if (candidate.size() < 3) continue;
    const std::pair closeness(end_of_part(word, candidate), candidate.size());
    if (closeness.first > 0 && closeness > most) {
      most = closeness;
      best = name;
    }
  }
  return best;
}

/// The shortest name that starts with the word or that the word starts with.
std::string by_beginning(const std::string& word, const Names& known) {
  constexpr std::size_t kMinLength = 4;
  std::string best;
  for (const std::string& name : known) {
    const std::string candidate = plain(name);
    if (std::min(word.size(), candidate.size()) < kMinLength) continue;
    if (!word.starts_with(candidate) && !candidate.starts_with(word)) continue;
    if (best.empty() || name.size() < best.size()) best = name;
  }
  return best;
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  if (word.size() > 64) return "";
  const std::string typed = plain(word);
  if (typed.empty()) return "";
  for (const std::string& name : known)
    if (plain(name) == typed) return name;
  for (const std::string& near : {by_other_name(typed, known), by_spelling(typed, known, 1),
                                  by_part(typed, known), by_beginning(typed, known)})
    if (!near.empty()) return near;
  return by_spelling(typed, known, typed.size() / 3);
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = nearest(word, known);
  return near.empty() ? "" : " (did you mean '" + near + "'?)";
}

}  // namespace attn
