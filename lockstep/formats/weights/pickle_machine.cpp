#include "lockstep/formats/weights/pickle_machine.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/weights/pickle.h"
#include "lockstep/formats/weights/torch_rules.h"

namespace lockstep::pickle {
namespace {

constexpr std::size_t kMostNameBytes = 1000;
constexpr std::uint64_t kKeptValues = 3;  // what the table needs for one

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

// Python's dicts refuse these, too.
void check_key(const Value& key) {
  if (std::holds_alternative<Dict*>(key) || std::holds_alternative<List*>(key))
    throw DataError(concat("a dict's key is ", kind_of(key)));
}

}  // namespace

Value Machine::run() {
  while (!has_stopped_) {
    opcode_at_ = next_;
    const std::uint8_t code = take(1)[0];
    if (opcode_at_ == 0 && code != kProtocol) {
      throw DataError("no pickle: it does not begin with its protocol");
    }
    const Opcode& opcode = opcode_of(code);
    if (opcode.run == nullptr) {
      throw DataError(concat("the opcode ", opcode.name, " is not read; no checkpoint needs it"));
    }
    opcode.run(*this);
  }
  opcode_at_ = next_;
  if (next_ != bytes_.size()) throw DataError("the pickle continues after its end");
  if (stack_.size() != 1 || !marks_.empty())
    throw DataError("the pickle leaves more than one value");
  return stack_.front();
}

// Whatever needs memory is counted: values, marks, and what is kept by number.
void Machine::spend(std::uint64_t values) {
  if (values > values_left_)
    throw DataError(concat("more than ", kMostValues, " values; no checkpoint needs as many"));
  values_left_ -= values;
}

std::span<const std::uint8_t> Machine::take(std::uint64_t size) {
  const std::size_t left = bytes_.size() - next_;
  if (size > left) {
    throw DataError(concat("the pickle ends: ", size, " bytes are needed, ", left, " are left"));
  }
  const auto taken = bytes_.subspan(next_, size);
  next_ += size;
  return taken;
}

std::uint64_t Machine::number(std::size_t bytes) { return little_endian(take(bytes)); }

std::string_view Machine::line() {
  const auto rest = bytes_.subspan(next_, std::min(kMostNameBytes, bytes_.size() - next_));
  const auto end = std::find(rest.begin(), rest.end(), '\n');
  if (end == rest.end()) throw DataError("a name does not end");
  const auto size = static_cast<std::size_t>(end - rest.begin());
  next_ += size + 1;
  return {reinterpret_cast<const char*>(rest.data()), size};
}

void Machine::push(Value value) {
  spend(1);
  stack_.push_back(value);
}

Value Machine::pop() {
  const Value value = top();
  stack_.pop_back();
  return value;
}

Value& Machine::top() {
  const std::size_t floor = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() <= floor) throw DataError("a value is taken where none is");
  return stack_.back();
}

std::vector<Value> Machine::pop_to_mark() {
  if (marks_.empty()) throw DataError("no mark is left");
  const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  std::vector<Value> values(first, stack_.end());
  stack_.erase(first, stack_.end());
  marks_.pop_back();
  return values;
}

Text Machine::text_from(std::span<const std::uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!is_utf8(text)) throw DataError(concat("the text ", printable(text), " is not UTF-8"));
  return &arena_.texts.emplace_back(text);
}

void Machine::push_name(std::string name) {
  push(&arena_.names.emplace_back(Name{std::move(name)}));
}

// Of what no tensor is made of.
void Machine::push_unread(const Name& what) { push(&what); }

void Machine::push_tuple(std::vector<Value> items) {
  push(&arena_.tuples.emplace_back(Tuple{std::move(items)}));
}

void Machine::push_last_as_tuple(std::size_t count) {
  std::vector<Value> items(count);
  for (std::size_t i = count; i-- > 0;) items[i] = pop();
  push_tuple(std::move(items));
}

void Machine::keep(std::uint64_t place) {
  if (kept_.insert_or_assign(place, top()).second) spend(kKeptValues);
}

void Machine::fetch(std::uint64_t place) {
  const auto found = kept_.find(place);
  if (found == kept_.end()) throw DataError(concat("nothing was kept as number ", place));
  push(found->second);
}

// Of an object of which only the name is known, anything may be set.
bool Machine::is_top_unread() {
  const Name* const* name = std::get_if<const Name*>(&top());
  return name != nullptr && !is_known((*name)->text);
}

void Machine::set_items(std::span<const Value> keys_and_values) {
  if (keys_and_values.size() % 2 != 0) throw DataError("a dict gets a key without a value");
  if (is_top_unread()) return;
  Dict* const* dict = std::get_if<Dict*>(&top());
  if (dict == nullptr) throw DataError(concat("entries are put into ", kind_of(top())));
  for (std::size_t i = 0; i < keys_and_values.size(); i += 2) {
    check_key(keys_and_values[i]);
    (*dict)->items.emplace_back(keys_and_values[i], keys_and_values[i + 1]);
  }
}

void Machine::append_items(std::span<const Value> items) {
  if (is_top_unread()) return;
  List* const* list = std::get_if<List*>(&top());
  if (list == nullptr) throw DataError(concat("items are appended to ", kind_of(top())));
  (*list)->items.insert((*list)->items.end(), items.begin(), items.end());
}

void Machine::call_top() {
  const Value arguments = pop();
  const Value callable = pop();
  push(call(callable, arguments, arena_));
}

// Those of a module are what it consists of. Attributes of an OrderedDict: PyTorch keeps the
// versions of modules there, which only the loading of files older than PyTorch 1 needs.
void Machine::build_top() {
  const Value state = pop();
  if (is_top_unread()) return;
  Dict* const* dict = std::get_if<Dict*>(&top());
  const bool has_attributes = dict != nullptr && ((*dict)->is_ordered || (*dict)->is_module);
  if (!has_attributes || !std::holds_alternative<Dict*>(state)) {
    throw DataError(concat("attributes (", kind_of(state), ") are set on ", kind_of(top())));
  }
  if (!(*dict)->is_module) return;
  const auto& items = std::get<Dict*>(state)->items;
  spend(items.size());
  (*dict)->items = items;
}

Pickle read_pickle(
    std::span<const std::uint8_t> bytes, const std::string& file, std::uint64_t file_offset) {
  auto arena = std::make_unique<Arena>();
  Machine machine(bytes, *arena);
  try {
    const Value root = machine.run();
    return {std::move(arena), root};
  } catch (const DataError& error) {
    throw DataError(concat(file, ": offset ", file_offset + machine.at(), ": ", error.what()));
  }
}

std::string kind_of(const Value& value) { return std::visit(Kind(), value); }

}  // namespace lockstep::pickle
