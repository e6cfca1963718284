#include "lockstep/cluster/node_list.h"

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::cluster {
namespace {

constexpr std::size_t kLongestText = 1 << 20, kLongestName = 255, kMostDigits = 9;

bool is_of_a_name(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '-' || letter == '_' ||
         letter == '.';
}

/// A text that is read from its beginning.
class Text {
 public:
  explicit Text(std::string_view text) : text_(text) {
    if (text.size() > kLongestText) refuse("is longer than 1 MiB");
  }

  bool ended() const { return at_ == text_.size(); }
  char next() const { return ended() ? '\0' : text_[at_]; }
  char take() { return text_[at_++]; }

  bool takes(char letter) {
    const bool is_there = !ended() && text_[at_] == letter;
    if (is_there) ++at_;
    return is_there;
  }

  void expect(char letter, const char* what) {
    if (!takes(letter)) refuse(what);
  }

  /// Takes some digits, with leading zeros.
  std::string_view digits() {
    const std::size_t first = at_;
    while (std::isdigit(static_cast<unsigned char>(next())) != 0) ++at_;
    if (at_ == first) refuse("needs a number");
    if (at_ - first > kMostDigits) refuse("has a number that is too large");
    return text_.substr(first, at_ - first);
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw InvalidArgument(
        concat("cluster: the list ", printable(text_), " ", what, " at byte ", at_));
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

std::size_t number_of(std::string_view digits) {
  return static_cast<std::size_t>(*parse_number<std::uint64_t>(digits));
}

// Within [ and ]: `01-04,7`. `most` is how many there may be.
std::vector<std::string> expand_ranges(Text& text, std::size_t most) {
  std::vector<std::string> numbers;
  do {
    const std::string_view first = text.digits();
    const std::string_view last = text.takes('-') ? text.digits() : first;
    const std::size_t low = number_of(first), high = number_of(last);
    if (high < low) text.refuse("has a range that ends before it begins");
    if (high - low >= most - numbers.size()) text.refuse("has more than 65536 hosts");
    for (std::size_t number = low; number <= high; ++number) {
      const std::string bare = std::to_string(number);
      const std::size_t zeros = first.size() - std::min(first.size(), bare.size());
      numbers.push_back(std::string(zeros, '0') + bare);
    }
  } while (text.takes(','));
  text.expect(']', "needs ]");
  return numbers;
}

void append(std::vector<std::string>& names, char letter, const Text& text) {
  if (names.front().size() >= kLongestName) text.refuse("has a name of more than 255 bytes");
  for (std::string& name : names) name += letter;
}

// The first of several ranges varies slowest.
std::vector<std::string> each_with_each(
    const std::vector<std::string>& names, const std::vector<std::string>& numbers) {
  std::vector<std::string> all;
  for (const std::string& name : names)
    for (const std::string& number : numbers) all.push_back(name + number);
  return all;
}

// One element: `r[1-2]n[1-3]-ib`.
std::vector<std::string> expand_element(Text& text, std::size_t most) {
  std::vector<std::string> names = {""};
  while (!text.ended() && text.next() != ',') {
    if (text.takes('[')) {
      names = each_with_each(names, expand_ranges(text, most / names.size()));
    } else if (is_of_a_name(text.next())) {
      append(names, text.take(), text);
    } else {
      text.refuse("has what is of no host's name");
    }
  }
  if (names.front().empty()) text.refuse("needs a name");
  return names;
}

}  // namespace

std::vector<std::string> expand_node_list(std::string_view list) {
  Text text(list);
  std::vector<std::string> hosts;
  do {
    if (hosts.size() == kMostNodes) text.refuse("has more than 65536 hosts");
    for (std::string& host : expand_element(text, kMostNodes - hosts.size()))
      hosts.push_back(std::move(host));
  } while (text.takes(','));
  return hosts;
}

std::vector<int> expand_task_counts(std::string_view list) {
  Text text(list);
  std::vector<int> counts;
  do {
    const std::size_t count = number_of(text.digits());
    if (count > kMostRanks) text.refuse("has a number that is too large");
    std::size_t times = 1;
    if (text.takes('(')) {
      text.expect('x', "needs x");
      times = number_of(text.digits());
      text.expect(')', "needs )");
    }
    if (times > kMostNodes - counts.size()) text.refuse("has more than 65536 hosts");
    counts.insert(counts.end(), times, static_cast<int>(count));
  } while (text.takes(','));
  if (!text.ended()) text.refuse("has something after a number");
  return counts;
}

}  // namespace lockstep::cluster
