#include "attn/base/expression.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"

namespace attn {
namespace {

using Kind = Expression::Kind;
using Relation = Expression::Relation;

constexpr std::pair<std::string_view, Relation> kRelations[] = {
    {"<=", Relation::less_equal}, {"<", Relation::less},   {">=", Relation::greater_equal},
    {">", Relation::greater},     {"==", Relation::equal}, {"!=", Relation::not_equal}};

/// Operators of other languages, and what to write instead.
constexpr std::pair<std::string_view, std::string_view> kForeign[] = {
    {"&&", "and"},     {"&", "and"},     {"||", "or"},     {"|", "or"}, {"!", "not"},
    {"=", "=="},       {"\u2264", "<="}, {"\u2265", ">="}, {"{", "("},  {"\u2212", "-"},
    {"\u2227", "and"}, {"\u2228", "or"}, {"/", "//"}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

[[noreturn]] void fail(const std::string& message, std::size_t position, const std::string& hint) {
  fail_usage(message + " at character " + std::to_string(position) + hint);
}

struct Token {
  enum class Kind { end, number, word, symbol };
  Kind kind = Kind::end;
  std::string_view text;
  std::size_t at = 0;  ///< in bytes
};

class Parser {
 public:
  Parser(const std::string& text, std::size_t start, const Language& language)
      : text_(text), language_(language), at_(start) {
    advance();
  }

  Expression whole() {
    Expression all = disjunction();
    if (token_.kind != Token::Kind::end) fail_here("expected an operator");
    return all;
  }

 private:
  /// Counts the levels of recursion.
  class Level {
   public:
    explicit Level(Parser& parser) : depth_(parser.depth_) {
      if (++depth_ > kMaxExpressionDepth)
        fail("expected at most " + std::to_string(kMaxExpressionDepth) + " nested operations",
             parser.position(parser.token_.at), "");
    }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    std::size_t& depth_;
  };

  /// The character that starts at this byte, from 1.
  std::size_t position(std::size_t at) const {
    return 1 + static_cast<std::size_t>(
                   std::count_if(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at),
                                 [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }));
  }

  /// "expected X, found '&&' at character 7 (use 'and')".
  [[noreturn]] void fail_here(const std::string& message) const {
    if (token_.kind == Token::Kind::end)
      fail(message + ", found the end", position(text_.size()), "");
    std::string hint;
    for (const auto& [foreign, ours] : kForeign)
      if (token_.text == foreign) hint = " (use '" + std::string(ours) + "')";
    const std::string_view pair = std::string_view(text_).substr(token_.at, 2);
    if (pair == "=>" || pair == "=<") hint = std::string(" (use '") + pair[1] + "=')";
    fail(message + ", found '" + printable(std::string(token_.text)) + "'", position(token_.at),
         hint);
  }

  void advance() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n'))
      ++at_;
    const std::size_t start = at_;
    Token::Kind kind = Token::Kind::symbol;
    if (at_ == text_.size()) {
      kind = Token::Kind::end;
    } else if (is_letter(text_[at_])) {
      kind = Token::Kind::word;
      while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    } else if (is_digit(text_[at_]) || text_[at_] == '.') {
      kind = Token::Kind::number;
      skip_number();
    } else {
      skip_symbol();
    }
    token_ = {kind, std::string_view(text_).substr(start, at_ - start), start};
  }

  /// All letters, digits and points, and a sign after an exponent, so that "1e-3x" is one token.
  void skip_number() {
    while (at_ < text_.size() &&
           (is_letter(text_[at_]) || is_digit(text_[at_]) || text_[at_] == '.' ||
            ((text_[at_] == '+' || text_[at_] == '-') && language_.has_reals &&
             (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E'))))
      ++at_;
  }

  /// One character, which may have several bytes, or an operator of two.
  void skip_symbol() {
    for (const std::string_view two : {"<=", ">=", "==", "!=", "//", "&&", "||", "**"})
      if (text_.compare(at_, 2, two) == 0) {
        at_ += 2;
        return;
      }
    ++at_;
    while (at_ < text_.size() && (static_cast<unsigned char>(text_[at_]) >> 6) == 2) ++at_;
  }

  bool is_word(std::string_view word) const {
    return token_.kind == Token::Kind::word && token_.text == word;
  }
  bool is_symbol(std::string_view symbol) const {
    return token_.kind == Token::Kind::symbol && token_.text == symbol;
  }
  bool skip(std::string_view symbol) {
    if (!is_symbol(symbol)) return false;
    advance();
    return true;
  }

  Expression node(Kind kind) const { return {.kind = kind, .position = position(token_.at)}; }

  /// An operand of "and", "or" and "not".
  Expression truth(Expression operand) const {
    if (!operand.is_truth_value() && !language_.numbers_are_true)
      fail_at(operand, "expected a comparison, found a number");
    return operand;
  }

  Expression numeric(Expression operand) const {
    if (operand.is_truth_value() && !language_.truths_are_numbers)
      fail_at(operand, "expected a number, found a truth value");
    return operand;
  }

  template <class Next>
  Expression list_of(Kind kind, std::string_view word, Next next) {
    Expression first = next();
    if (!is_word(word)) return first;
    Expression all = node(kind);
    all.operands.push_back(truth(std::move(first)));
    while (is_word(word)) {
      advance();
      all.operands.push_back(truth(next()));
    }
    return all;
  }

  Expression disjunction() {
    return list_of(Kind::logical_or, "or", [&] { return conjunction(); });
  }
  Expression conjunction() {
    return list_of(Kind::logical_and, "and", [&] { return negation(); });
  }

  Expression negation() {
    if (!is_word("not")) return comparison();
    const Level level(*this);
    Expression inverted = node(Kind::logical_not);
    advance();
    inverted.operands.push_back(truth(negation()));
    return inverted;
  }

  std::optional<Relation> relation() const {
    for (const auto& [symbol, relation] : kRelations)
      if (is_symbol(symbol)) return relation;
    return std::nullopt;
  }

  Expression comparison() {
    Expression first = sum();
    if (!relation()) return first;
    Expression chain = node(Kind::comparison);
    chain.operands.push_back(numeric(std::move(first)));
    while (const auto found = relation()) {
      advance();
      chain.relations.push_back(*found);
      chain.operands.push_back(numeric(sum()));
    }
    return chain;
  }

  template <class Next>
  Expression binary(Expression left, Kind kind, Next next) {
    Expression both = node(kind);
    advance();
    both.operands.push_back(numeric(std::move(left)));
    both.operands.push_back(numeric(next()));
    return both;
  }

  Expression sum() {
    const auto next = [&] { return product(); };
    Expression all = product();
    while (is_symbol("+") || is_symbol("-"))
      all = binary(std::move(all), is_symbol("+") ? Kind::add : Kind::subtract, next);
    return all;
  }

  std::optional<Kind> multiplication() const {
    if (is_symbol("*")) return Kind::multiply;
    if (is_symbol("/") && language_.has_reals) return Kind::divide;
    const bool rounds_down = !language_.has_reals || language_.rounds_down;
    if (is_symbol("//") && rounds_down) return Kind::floor_divide;
    if (is_symbol("%") && rounds_down) return Kind::remainder;
    return std::nullopt;
  }

  Expression product() {
    Expression all = unary();
    while (const auto kind = multiplication())
      all = binary(std::move(all), *kind, [&] { return unary(); });
    return all;
  }

  Expression unary() {
    if (!is_symbol("-")) return atom();
    const Level level(*this);
    Expression negative = node(Kind::negate);
    advance();
    negative.operands.push_back(numeric(unary()));
    return negative;
  }

  Expression atom() {
    if (token_.kind == Token::Kind::number) return number();
    if (token_.kind == Token::Kind::word && !is_word("and") && !is_word("or") && !is_word("not"))
      return named();
    if (!is_symbol("(")) fail_here("expected a number, a " + language_.noun + " or '('");
    const Level level(*this);
    advance();
    Expression inner = disjunction();
    if (!skip(")")) fail_here("expected an operator or ')'");
    return inner;
  }

  Expression number() {
    Expression result = node(Kind::number);
    const char *first = token_.text.data(), *last = first + token_.text.size();
    const auto [end, fault] = language_.has_reals ? std::from_chars(first, last, result.real)
                                                  : std::from_chars(first, last, result.integer);
    if (fault == std::errc::result_out_of_range && end == last)
      fail_here("expected a number within the limits of " +
                std::string(language_.has_reals ? "float64" : "int64"));
    if (fault != std::errc() || end != last)
      fail_here(language_.has_reals ? "expected a number" : "expected an integer");
    advance();
    return result;
  }

  void require_known(const Expression& named, const std::vector<std::string>& known,
                     const std::string& noun) const {
    if (std::find(known.begin(), known.end(), named.name) != known.end()) return;
    fail_at(named, "unknown " + noun + " '" + printable(named.name) + "'",
            did_you_mean(named.name, known, NameKind::other));
  }

  Expression named() {
    Expression result = node(Kind::name);
    result.name = token_.text;
    advance();
    if (is_symbol("(")) {
      result.kind = Kind::call;
      require_known(result, language_.functions,
                    language_.functions.empty() ? "function" : language_.noun);
      operands(result, ")");
    } else if (is_symbol("[")) {
      result.kind = Kind::index;
      require_known(result, language_.tables, "table");
      operands(result, "]");
    } else {
      if (std::find(language_.functions.begin(), language_.functions.end(), result.name) !=
              language_.functions.end() &&
          std::find(language_.names.begin(), language_.names.end(), result.name) ==
              language_.names.end())
        fail_here("expected '(' after " + result.name);
      require_known(result, language_.names, language_.noun);
    }
    return result;
  }

  /// The operands in parentheses or brackets; `closing` ends them.
  void operands(Expression& of, std::string_view closing) {
    const Level level(*this);
    do {
      advance();
      of.keywords.push_back(of.kind == Kind::call ? keyword() : "");
      of.operands.push_back(numeric(sum()));
    } while (is_symbol(","));
    if (!skip(closing)) fail_here("expected ',' or '" + std::string(closing) + "'");
  }

  /// Skips "WORD =" and returns the word; "" if something else follows.
  std::string keyword() {
    const std::size_t next = text_.find_first_not_of(" \t\n", at_);
    if (token_.kind != Token::Kind::word || next == std::string::npos || text_[next] != '=' ||
        text_.compare(next, 2, "==") == 0)
      return "";
    std::string word(token_.text);
    advance();
    advance();
    return word;
  }

  const std::string& text_;
  const Language& language_;
  std::size_t at_;
  std::size_t depth_ = 0;
  Token token_;
};

}  // namespace

void fail_at(const Expression& part, const std::string& message, const std::string& hint) {
  fail(message, part.position, hint);
}

Expression parse_expression(const std::string& text, std::size_t start, const Language& language) {
  if (text.size() > kMaxExpressionLength)
    fail_usage("expected at most " + std::to_string(kMaxExpressionLength) + " characters, found " +
               std::to_string(text.size()));
  return Parser(text, start, language).whole();
}

}  // namespace attn
