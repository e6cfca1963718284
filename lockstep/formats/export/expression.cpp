#include "lockstep/formats/export/expression.h"

#include <cctype>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/text.h"

namespace lockstep::exported {
namespace {

constexpr int kDeepest = 100;

/// A reader of what SymPy's srepr writes: calls of classes, names in quotes, numbers.
class Expression {
 public:
  explicit Expression(std::string_view text) : rest_(text) {}

  /// Returns the whole as people write it; nothing if it is of another form.
  std::optional<std::string> plain() {
    Term result = term(0);
    if (!is_understood_ || !rest_.empty()) return std::nullopt;
    return std::move(result.text);
  }

 private:
  struct Term {
    std::string text;
    bool is_sum = false;  // so needs brackets in a product
  };

  Term term(int depth) {
    if (depth > kDeepest) return misunderstood();
    if (takes('\'')) return quoted();
    std::string name = word();
    if (name.empty()) return misunderstood();
    if (!takes('(')) return {std::move(name)};
    return called(name, arguments(depth + 1));
  }

  Term quoted() {
    std::string name(rest_.substr(0, rest_.find('\'')));
    rest_.remove_prefix(name.size());
    return takes('\'') ? Term{std::move(name)} : misunderstood();
  }

  std::string word() {
    std::size_t size = 0;
    while (size < rest_.size() && is_of_word(rest_[size])) ++size;
    const std::string result(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return result;
  }

  // What is assumed of a symbol, such as positive=True, is left out.
  std::vector<Term> arguments(int depth) {
    std::vector<Term> terms;
    while (is_understood_ && !takes(')')) {
      if (!terms.empty() && !takes(',')) misunderstood();
      takes(' ');
      Term next = term(depth);
      if (takes('=')) {
        word();
      } else {
        terms.push_back(std::move(next));
      }
    }
    return terms;
  }

  static Term called(const std::string& name, std::vector<Term> terms) {
    if ((name == "Symbol" || name == "Integer") && terms.size() == 1) return std::move(terms[0]);
    std::vector<std::string> texts;
    for (Term& term : terms) {
      const bool needs_brackets = name == "Mul" && term.is_sum;
      texts.push_back(needs_brackets ? '(' + term.text + ')' : std::move(term.text));
    }
    if (name == "Add") return {joined(texts, " + "), true};
    if (name == "Mul") return {joined(texts, "*")};
    return {name + '(' + joined(texts) + ')'};
  }

  static bool is_of_word(char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_' ||
           letter == '-' || letter == '.';
  }

  bool takes(char letter) {
    if (!rest_.starts_with(letter)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  Term misunderstood() {
    is_understood_ = false;
    return {};
  }

  std::string_view rest_;
  bool is_understood_ = true;
};

}  // namespace

std::string plain_expression(const std::string& text) {
  return Expression(text).plain().value_or(text);
}

}  // namespace lockstep::exported
