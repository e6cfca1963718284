#include <algorithm>
#include <limits>
#include <set>
#include <span>
#include <utility>
#include <variant>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/weights/torch_file.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostNameBytes = 256 << 20;
constexpr std::size_t kMostOthersListed = 3;

/// A dict that holds tensors and dicts of tensors, nothing else.
struct TensorPart {
  std::string name;
  int depth = 0;
  std::size_t tensors = 0;
};

/// A walk through a tree of values that collects the tensors below a prefix, and what else is
/// there.
class Collector {
 public:
  Collector(const TorchFile& file, std::string_view only) : file_(file), only_(only) {
    if (!only_.empty()) only_ += '.';
  }

  TensorFile collect() {
    visit("", file_.value);
    if (others_ > 0) refuse_others();
    check(only_.empty() || !tensors_.empty(), file_.name, ": no tensor's name begins with ", only_,
        " (at the top are: ", top_names(), ')');
    return TensorFile(std::move(tensors_), {}, file_.memory);
  }

 private:
  void visit(const std::string& name, const TorchValue& value) {
    std::visit([&](const auto& content) { add(name, content); }, value.content);
  }

  void add(const std::string& name, const TorchDict& dict) {
    if (dict.items.empty() && !name.empty()) add_other(name, "an empty dict");
    const std::size_t tensors = tensors_.size(), others = others_;
    ++depth_;
    for (const auto& [key, value] : dict.items) visit(below(name, text_of(key)), value);
    --depth_;
    if (others_ == others && tensors_.size() > tensors)
      parts_.push_back({name, depth_, tensors_.size() - tensors});
  }

  void add(const std::string& name, const TorchList& list) {
    if (list.items.empty()) add_other(name, "an empty list");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      visit(below(name, std::to_string(i)), list.items[i]);
    }
  }

  void add(const std::string& name, const TorchTensor& tensor) {
    if (!name.starts_with(only_)) return;
    const std::string own = name.substr(only_.size());
    if (own.empty())
      throw DataError(
          concat(file_.name, ": holds a tensor without a name; in Python, save a dict of tensors"));
    if (!names_.insert(own).second) {
      throw DataError(concat(file_.name, ": two tensors have the name ", printable(own)));
    }
    tensors_.push_back({own, tensor.type, tensor.shape, tensor.bytes});
  }

  void add(const std::string& name, std::monostate) { add_other(name, "None"); }
  void add(const std::string& name, bool) { add_other(name, "a bool"); }
  void add(const std::string& name, std::int64_t) { add_other(name, "an integer"); }
  void add(const std::string& name, double) { add_other(name, "a float"); }
  void add(const std::string& name, const std::string&) { add_other(name, "a text"); }
  void add(const std::string& name, const TorchOther& other) {
    add_other(name, concat(other.what, ", which is not read, let alone executed"));
  }

  void add_other(const std::string& name, const std::string& kind) {
    if (!name.starts_with(only_)) return;
    if (++others_ <= kMostOthersListed)
      first_others_.push_back(
          concat(name.empty() ? "the whole" : printable(name), " (", kind, ')'));
  }

  [[noreturn]] void refuse_others() const {
    int least = std::numeric_limits<int>::max();
    for (const TensorPart& part : parts_) least = std::min(least, part.depth);
    std::vector<std::string> names;
    for (const TensorPart& part : parts_)
      if (part.depth == least && names.size() < kMostListed)
        names.push_back(concat(printable(part.name), " (", part.tensors, " tensors)"));
    throw MixedContent(file_.name, std::move(names),
        concat(others_, " values are not tensors: ", first_of(first_others_, others_)));
  }

  std::string top_names() const {
    std::vector<std::string> names;
    const auto* dict = std::get_if<TorchDict>(&file_.value.content);
    if (dict == nullptr) return "";
    for (const auto& item : std::span(dict->items).first(std::min(kMostListed, dict->items.size())))
      names.push_back(printable(text_of(item.key)));
    return first_of(names, dict->items.size());
  }

  static std::string text_of(const TorchKey& key) {
    const auto* number = std::get_if<std::int64_t>(&key);
    return number != nullptr ? std::to_string(*number) : std::get<std::string>(key);
  }

  // A few long names, each within all others, would need far more memory than the file has.
  std::string below(const std::string& name, const std::string& key) {
    std::string result = name.empty() ? key : name + '.' + key;
    name_bytes_ += result.size();
    if (name_bytes_ > kMostNameBytes) {
      throw DataError(concat(file_.name, ": names of more than ", kMostNameBytes, " bytes"));
    }
    return result;
  }

  const TorchFile& file_;
  std::string only_;
  std::vector<TensorEntry> tensors_;
  std::set<std::string> names_;
  std::vector<std::string> first_others_;
  std::size_t others_ = 0;
  std::vector<TensorPart> parts_;
  int depth_ = 0;
  std::size_t name_bytes_ = 0;
};

std::string advice_on(
    const std::vector<std::string>& parts, const std::string& rest, const std::string& before) {
  const std::string which = parts.empty() ? "no part holds tensors alone"
                                          : concat("take a part that holds tensors alone: ", before,
                                                joined(parts, concat(" or ", before)));
  return concat(which, "; ", rest);
}

}  // namespace

MixedContent::MixedContent(
    const std::string& file, std::vector<std::string> which, std::string others)
    : DataError(concat(file, ": ", advice_on(which, others, ""))),
      parts(std::move(which)),
      rest(std::move(others)) {}

std::string MixedContent::advice(const std::string& flag) const {
  return advice_on(parts, rest, concat(flag, ' '));
}

TensorFile tensors_of(const TorchFile& file, std::string_view only) {
  return Collector(file, only).collect();
}

}  // namespace lockstep
