#include "attn/cli/topics.h"

#include <string_view>

#include "attn/core/attention.h"

extern "C" {
extern const char attn_topics_begin[], attn_topics_end[];
}

namespace attn {
namespace {

constexpr std::size_t kWidth = 76;  // 80 without the margins of a manual page

/// One line per output: name, shape and description.
std::string outputs_table() {
  std::string text;
  for (const OutputRow& output : kOutputs) {
    std::string line = "  " + std::string(output.name);
    line.resize(16, ' ');
    line += output.axes.text();
    line.resize(std::max<std::size_t>(line.size() + 1, 30), ' ');
    std::string what(output.description);
    while (line.size() + what.size() > kWidth) {  // continued on the next line
      const std::size_t cut = what.rfind(' ', kWidth - line.size());
      text += line + what.substr(0, cut) + "\n";
      what = what.substr(cut + 1);
      line.assign(30, ' ');
    }
    text += line + what + "\n";
  }
  return text;
}

/// A topic starts with a line "= NAME: SUMMARY".
std::vector<Topic> read_topics() {
  std::vector<Topic> all;
  std::string_view rest(attn_topics_begin,
                        static_cast<std::size_t>(attn_topics_end - attn_topics_begin));
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1);
    const std::string line(rest.substr(0, end));
    rest.remove_prefix(end + 1);
    if (line.starts_with("= ")) {
      const std::size_t colon = line.find(": ");
      all.push_back({line.substr(2, colon - 2), line.substr(colon + 2), ""});
    } else {
      all.back().text += line == "@OUTPUTS@" ? outputs_table() : line + "\n";
    }
  }
  for (Topic& topic : all)
    while (topic.text.ends_with("\n\n")) topic.text.pop_back();
  return all;
}

}  // namespace

const std::vector<Topic>& topics() {
  static const std::vector<Topic> all = read_topics();
  return all;
}

const Topic* find_topic(const std::string& name) {
  for (const Topic& topic : topics())
    if (topic.name == name) return &topic;
  return nullptr;
}

std::vector<std::string> topic_names() {
  std::vector<std::string> names;
  for (const Topic& topic : topics()) names.push_back(topic.name);
  return names;
}

}  // namespace attn
