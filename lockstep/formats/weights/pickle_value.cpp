#include "lockstep/formats/weights/pickle_value.h"

#include "lockstep/core/utf8.h"

namespace lockstep::pickle {
namespace {

struct Kind {
  std::string operator()(std::monostate) const { return "None"; }
  std::string operator()(bool) const { return "a bool"; }
  std::string operator()(std::int64_t) const { return "an integer"; }
  std::string operator()(double) const { return "a float"; }
  std::string operator()(Text) const { return "a text"; }
  std::string operator()(const Tuple*) const { return "a tuple"; }
  std::string operator()(const List*) const { return "a list"; }
  std::string operator()(const Dict*) const { return "a dict"; }
  std::string operator()(const Name* name) const { return "the name " + printable(name->text); }
  std::string operator()(const Storage*) const { return "a storage"; }
  std::string operator()(const Tensor*) const { return "a tensor"; }
};

}  // namespace

std::string kind_of(const Value& value) { return std::visit(Kind(), value); }

}  // namespace lockstep::pickle
