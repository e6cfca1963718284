#include "lockstep/formats/weights/pickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>
#include <unordered_map>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/weights/torch_rules.h"

namespace lockstep::pickle {
namespace {

const Name kBytes{"bytes"}, kSet{"set"}, kLongInteger{"an integer of more than 64 bits"};
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

/// An interpreter of pickles: a stack of values, marks in it, and values kept by number.
///
/// What is wrong throws DataError with the reason alone, see at().
struct Machine {
  Machine(std::span<const std::uint8_t> bytes, Arena& arena) : bytes_(bytes), arena_(arena) {}

  /// Carries out all opcodes and gives the one value that is left.
  Value run();

  /// Returns where the opcode that is carried out begins.
  std::size_t at() const { return opcode_at_; }

  // Whatever needs memory is counted: values, marks, and what is kept by number.
  void spend(std::uint64_t values) {
    if (values > values_left_)
      throw DataError(concat("more than ", kMostValues, " values; no checkpoint needs as many"));
    values_left_ -= values;
  }

  std::span<const std::uint8_t> take(std::uint64_t size) {
    const std::size_t left = bytes_.size() - next_;
    if (size > left) {
      throw DataError(concat("the pickle ends: ", size, " bytes are needed, ", left, " are left"));
    }
    const auto taken = bytes_.subspan(next_, size);
    next_ += size;
    return taken;
  }

  std::uint64_t number(std::size_t bytes) { return little_endian(take(bytes)); }

  std::string_view line() {
    const auto rest = bytes_.subspan(next_, std::min(kMostNameBytes, bytes_.size() - next_));
    const auto end = std::find(rest.begin(), rest.end(), '\n');
    if (end == rest.end()) throw DataError("a name does not end");
    const auto size = static_cast<std::size_t>(end - rest.begin());
    next_ += size + 1;
    return text_of(rest.first(size));
  }

  void push(Value value) {
    spend(1);
    stack_.push_back(value);
  }

  Value pop() {
    const Value value = top();
    stack_.pop_back();
    return value;
  }

  Value& top() {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= floor) throw DataError("a value is taken where none is");
    return stack_.back();
  }

  std::vector<Value> pop_to_mark() {
    if (marks_.empty()) throw DataError("no mark is left");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Value> values(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return values;
  }

  Text text_from(std::span<const std::uint8_t> bytes) {
    const std::string_view text = text_of(bytes);
    if (!is_utf8(text)) throw DataError(concat("the text ", printable(text), " is not UTF-8"));
    return &arena_.texts.emplace_back(text);
  }

  void push_name(std::string name) { push(&arena_.names.emplace_back(Name{std::move(name)})); }

  // For values that are no part of a tensor.
  void push_unread(const Name& what) { push(&what); }

  void skip(std::uint64_t size, const Name& what) {
    take(size);
    push_unread(what);
  }

  void push_tuple(std::vector<Value> items) {
    push(&arena_.tuples.emplace_back(Tuple{std::move(items)}));
  }

  void push_last_as_tuple(std::size_t count) {
    std::vector<Value> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    push_tuple(std::move(items));
  }

  void keep(std::uint64_t place) {
    if (kept_.insert_or_assign(place, top()).second) spend(kKeptValues);
  }

  void fetch(std::uint64_t place) {
    const auto found = kept_.find(place);
    if (found == kept_.end()) throw DataError(concat("nothing was kept as number ", place));
    push(found->second);
  }

  // Of an object of which only the name is known, anything may be set.
  bool is_top_unread() {
    const Name* const* name = std::get_if<const Name*>(&top());
    return name != nullptr && !is_known((*name)->text);
  }

  void set_items(std::span<const Value> keys_and_values) {
    if (keys_and_values.size() % 2 != 0) throw DataError("a dict gets a key without a value");
    if (is_top_unread()) return;
    Dict* const* dict = std::get_if<Dict*>(&top());
    if (dict == nullptr) throw DataError(concat("entries are put into ", kind_of(top())));
    for (std::size_t i = 0; i < keys_and_values.size(); i += 2) {
      check_key(keys_and_values[i]);
      (*dict)->items.emplace_back(keys_and_values[i], keys_and_values[i + 1]);
    }
  }

  void append_items(std::span<const Value> items) {
    if (is_top_unread()) return;
    List* const* list = std::get_if<List*>(&top());
    if (list == nullptr) throw DataError(concat("items are appended to ", kind_of(top())));
    (*list)->items.insert((*list)->items.end(), items.begin(), items.end());
  }

  void call_top() {
    const Value arguments = pop();
    const Value callable = pop();
    push(call(callable, arguments, arena_));
  }

  // Those of a module are what it consists of. Attributes of an OrderedDict: PyTorch keeps the
  // versions of modules there, which only the loading of files older than PyTorch 1 needs.
  void build_top() {
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

  void read_protocol() {
    const std::uint64_t protocol = number(1);
    if (at() != 0 || protocol < 2 || protocol > 5) {
      throw DataError(concat("protocol ", protocol, " where one of 2 to 5 begins a pickle"));
    }
  }

  // A frame says how much to read at once, which is of no use here.
  void read_frame() {
    const std::uint64_t size = number(8);
    const std::size_t left = bytes_.size() - next_;
    if (size > left) throw DataError(concat("a frame of ", size, " bytes, ", left, " are left"));
  }

  void push_mark() {
    spend(1);
    marks_.push_back(stack_.size());
  }

  void push_int32() {
    push(std::int64_t{static_cast<std::int32_t>(static_cast<std::uint32_t>(number(4)))});
  }

  void push_long() {
    const std::size_t size = number(1);
    if (size > 8) return skip(size, kLongInteger);
    const std::uint64_t bits = number(size);
    const auto unused = static_cast<int>(64 - 8 * size);
    // Two's complement: the highest bit that is there is the sign.
    push(size == 0 ? std::int64_t{0} : static_cast<std::int64_t>(bits << unused) >> unused);
  }

  void push_float() { push(std::bit_cast<double>(big_endian(take(8)))); }

  void push_frozen_set() {
    pop_to_mark();
    push_unread(kSet);
  }

  void call_with_names() {
    pop();  // arguments by name
    call_top();
  }

  void append_top() {
    const Value item = pop();
    append_items({&item, 1});
  }

  void set_top_item() {
    const Value value = pop();
    const std::array<Value, 2> entry{pop(), value};
    set_items(entry);
  }

  void push_global() {
    const std::string_view module = line();
    push_name(concat(module, ' ', line()));
  }

  void push_stack_global() {
    const Value name = pop();
    const Value module = pop();
    if (!std::holds_alternative<Text>(name) || !std::holds_alternative<Text>(module)) {
      throw DataError(concat("a name is made of ", kind_of(module), " and ", kind_of(name)));
    }
    push_name(concat(*std::get<Text>(module), ' ', *std::get<Text>(name)));
  }

  void push_storage() {
    const Value id = pop();
    push(storage_of(id, arena_));
  }

  // The table of opcodes below works on them, as the functions above do.
  // NOLINTBEGIN(readability-identifier-naming)
  std::span<const std::uint8_t> bytes_;
  Arena& arena_;
  std::uint64_t values_left_ = kMostValues;
  std::size_t next_ = 0;
  std::size_t opcode_at_ = 0;
  bool has_stopped_ = false;
  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, Value> kept_;
  // NOLINTEND(readability-identifier-naming)
};

constexpr std::uint8_t kProtocol = 0x80;

/// An opcode and its effect; those that are known and not read have only a name.
struct Opcode {
  const char* name = "without a meaning";
  void (*run)(Machine&) = nullptr;
};

struct Row {
  std::uint8_t code;
  Opcode opcode;
};

/// The opcodes that are read, by their names in Python's pickletools.
constexpr std::array kRead{
    Row{kProtocol, {"PROTO", [](Machine& m) { m.read_protocol(); }}},
    Row{0x95, {"FRAME", [](Machine& m) { m.read_frame(); }}},
    Row{'.', {"STOP", [](Machine& m) { m.has_stopped_ = true; }}},
    Row{'(', {"MARK", [](Machine& m) { m.push_mark(); }}},
    Row{'N', {"NONE", [](Machine& m) { m.push(std::monostate()); }}},
    Row{0x88, {"NEWTRUE", [](Machine& m) { m.push(true); }}},
    Row{0x89, {"NEWFALSE", [](Machine& m) { m.push(false); }}},
    Row{'J', {"BININT", [](Machine& m) { m.push_int32(); }}},
    Row{'K', {"BININT1", [](Machine& m) { m.push(static_cast<std::int64_t>(m.number(1))); }}},
    Row{'M', {"BININT2", [](Machine& m) { m.push(static_cast<std::int64_t>(m.number(2))); }}},
    Row{0x8a, {"LONG1", [](Machine& m) { m.push_long(); }}},
    Row{0x8b, {"LONG4", [](Machine& m) { m.skip(m.number(4), kLongInteger); }}},
    Row{'G', {"BINFLOAT", [](Machine& m) { m.push_float(); }}},
    Row{'C', {"SHORT_BINBYTES", [](Machine& m) { m.skip(m.number(1), kBytes); }}},
    Row{'B', {"BINBYTES", [](Machine& m) { m.skip(m.number(4), kBytes); }}},
    Row{0x8e, {"BINBYTES8", [](Machine& m) { m.skip(m.number(8), kBytes); }}},
    Row{0x96, {"BYTEARRAY8", [](Machine& m) { m.skip(m.number(8), kBytes); }}},
    Row{0x8f, {"EMPTY_SET", [](Machine& m) { m.push_unread(kSet); }}},
    Row{0x90, {"ADDITEMS", [](Machine& m) { m.append_items(m.pop_to_mark()); }}},
    Row{0x91, {"FROZENSET", [](Machine& m) { m.push_frozen_set(); }}},
    Row{0x81, {"NEWOBJ", [](Machine& m) { m.call_top(); }}},
    Row{0x92, {"NEWOBJ_EX", [](Machine& m) { m.call_with_names(); }}},
    Row{0x8c, {"SHORT_BINUNICODE", [](Machine& m) { m.push(m.text_from(m.take(m.number(1)))); }}},
    Row{'X', {"BINUNICODE", [](Machine& m) { m.push(m.text_from(m.take(m.number(4)))); }}},
    Row{0x8d, {"BINUNICODE8", [](Machine& m) { m.push(m.text_from(m.take(m.number(8)))); }}},
    Row{')', {"EMPTY_TUPLE", [](Machine& m) { m.push_tuple({}); }}},
    Row{'t', {"TUPLE", [](Machine& m) { m.push_tuple(m.pop_to_mark()); }}},
    Row{0x85, {"TUPLE1", [](Machine& m) { m.push_last_as_tuple(1); }}},
    Row{0x86, {"TUPLE2", [](Machine& m) { m.push_last_as_tuple(2); }}},
    Row{0x87, {"TUPLE3", [](Machine& m) { m.push_last_as_tuple(3); }}},
    Row{']', {"EMPTY_LIST", [](Machine& m) { m.push(&m.arena_.lists.emplace_back()); }}},
    Row{'a', {"APPEND", [](Machine& m) { m.append_top(); }}},
    Row{'e', {"APPENDS", [](Machine& m) { m.append_items(m.pop_to_mark()); }}},
    Row{'}', {"EMPTY_DICT", [](Machine& m) { m.push(&m.arena_.dicts.emplace_back()); }}},
    Row{'s', {"SETITEM", [](Machine& m) { m.set_top_item(); }}},
    Row{'u', {"SETITEMS", [](Machine& m) { m.set_items(m.pop_to_mark()); }}},
    Row{'q', {"BINPUT", [](Machine& m) { m.keep(m.number(1)); }}},
    Row{'r', {"LONG_BINPUT", [](Machine& m) { m.keep(m.number(4)); }}},
    Row{0x94, {"MEMOIZE", [](Machine& m) { m.keep(m.kept_.size()); }}},
    Row{'h', {"BINGET", [](Machine& m) { m.fetch(m.number(1)); }}},
    Row{'j', {"LONG_BINGET", [](Machine& m) { m.fetch(m.number(4)); }}},
    Row{'c', {"GLOBAL", [](Machine& m) { m.push_global(); }}},
    Row{0x93, {"STACK_GLOBAL", [](Machine& m) { m.push_stack_global(); }}},
    Row{'R', {"REDUCE", [](Machine& m) { m.call_top(); }}},
    Row{'b', {"BUILD", [](Machine& m) { m.build_top(); }}},
    Row{'Q', {"BINPERSID", [](Machine& m) { m.push_storage(); }}},
};

// Known to Python and in no checkpoint.
constexpr std::array kNotRead{
    Row{'0', {"POP"}},
    Row{'1', {"POP_MARK"}},
    Row{'2', {"DUP"}},
    Row{'F', {"FLOAT"}},
    Row{'I', {"INT"}},
    Row{'L', {"LONG"}},
    Row{'P', {"PERSID"}},
    Row{'S', {"STRING"}},
    Row{'T', {"BINSTRING"}},
    Row{'U', {"SHORT_BINSTRING"}},
    Row{'V', {"UNICODE"}},
    Row{0x97, {"NEXT_BUFFER"}},
    Row{0x98, {"READONLY_BUFFER"}},
    Row{'d', {"DICT"}},
    Row{'l', {"LIST"}},
    Row{'g', {"GET"}},
    Row{'p', {"PUT"}},
    Row{'i', {"INST"}},
    Row{'o', {"OBJ"}},
    Row{0x82, {"EXT1"}},
    Row{0x83, {"EXT2"}},
    Row{0x84, {"EXT4"}},
};

constexpr auto kTable = [] {
  std::array<Opcode, 256> table{};
  table.fill(Opcode{});
  for (const Row& row : kNotRead) table[row.code] = row.opcode;
  for (const Row& row : kRead) table[row.code] = row.opcode;
  return table;
}();

Value Machine::run() {
  while (!has_stopped_) {
    opcode_at_ = next_;
    const std::uint8_t code = take(1)[0];
    if (opcode_at_ == 0 && code != kProtocol) {
      throw DataError("no pickle: it does not begin with its protocol");
    }
    const Opcode& opcode = kTable[code];
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

}  // namespace

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
