#include <array>
#include <bit>

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/pickle_machine.h"
#include "lockstep/formats/weights/torch_rules.h"

namespace lockstep::pickle {

namespace {

const Name kBytes{"bytes"}, kSet{"set"}, kLongInteger{"an integer of more than 64 bits"};

}  // namespace

/// One function for each opcode that is read, by its name in Python's pickletools.
struct Opcodes {
  static void proto(Machine& m) {
    const std::uint64_t protocol = m.number(1);
    if (m.at() != 0 || protocol < 2 || protocol > 5) {
      throw DataError(concat("protocol ", protocol, " where one of 2 to 5 begins a pickle"));
    }
  }
  // A frame says how much to read at once, which is of no use here.
  static void frame(Machine& m) {
    const std::uint64_t size = m.number(8);
    const std::size_t left = m.bytes_.size() - m.next_;
    if (size > left) throw DataError(concat("a frame of ", size, " bytes, ", left, " are left"));
  }
  static void stop(Machine& m) { m.has_stopped_ = true; }
  static void mark(Machine& m) {
    m.spend(1);
    m.marks_.push_back(m.stack_.size());
  }

  static void none(Machine& m) { m.push(std::monostate()); }
  static void new_true(Machine& m) { m.push(true); }
  static void new_false(Machine& m) { m.push(false); }
  static void binint(Machine& m) {
    m.push(std::int64_t{static_cast<std::int32_t>(static_cast<std::uint32_t>(m.number(4)))});
  }
  static void binint1(Machine& m) { m.push(static_cast<std::int64_t>(m.number(1))); }
  static void binint2(Machine& m) { m.push(static_cast<std::int64_t>(m.number(2))); }
  static void long1(Machine& m) {
    const std::size_t size = m.number(1);
    if (size > 8) return skip(m, size, kLongInteger);
    const std::uint64_t bits = m.number(size);
    const auto unused = static_cast<int>(64 - 8 * size);
    // Two's complement: the highest bit that is there is the sign.
    m.push(size == 0 ? std::int64_t{0} : static_cast<std::int64_t>(bits << unused) >> unused);
  }
  static void skip(Machine& m, std::uint64_t size, const Name& what) {
    m.take(size);
    m.push_unread(what);
  }
  static void long4(Machine& m) { skip(m, m.number(4), kLongInteger); }
  static void short_binbytes(Machine& m) { skip(m, m.number(1), kBytes); }
  static void binbytes(Machine& m) { skip(m, m.number(4), kBytes); }
  static void binbytes8(Machine& m) { skip(m, m.number(8), kBytes); }
  static void binfloat(Machine& m) {
    std::uint64_t bits = 0;
    for (const std::uint8_t byte : m.take(8)) bits = bits << 8 | byte;
    m.push(std::bit_cast<double>(bits));
  }

  static void short_binunicode(Machine& m) { m.push(m.text_from(m.take(m.number(1)))); }
  static void binunicode(Machine& m) { m.push(m.text_from(m.take(m.number(4)))); }
  static void binunicode8(Machine& m) { m.push(m.text_from(m.take(m.number(8)))); }

  static void empty_tuple(Machine& m) { m.push_tuple({}); }
  static void tuple(Machine& m) { m.push_tuple(m.pop_to_mark()); }
  static void tuple1(Machine& m) { m.push_last_as_tuple(1); }
  static void tuple2(Machine& m) { m.push_last_as_tuple(2); }
  static void tuple3(Machine& m) { m.push_last_as_tuple(3); }
  static void empty_list(Machine& m) { m.push(&m.arena_.lists.emplace_back()); }
  static void append(Machine& m) {
    const Value item = m.pop();
    m.append_items({&item, 1});
  }
  static void appends(Machine& m) { m.append_items(m.pop_to_mark()); }
  static void empty_dict(Machine& m) { m.push(&m.arena_.dicts.emplace_back()); }
  static void setitem(Machine& m) {
    const Value value = m.pop();
    const std::array<Value, 2> entry{m.pop(), value};
    m.set_items(entry);
  }
  static void setitems(Machine& m) { m.set_items(m.pop_to_mark()); }
  static void empty_set(Machine& m) { m.push_unread(kSet); }
  static void additems(Machine& m) { m.append_items(m.pop_to_mark()); }
  static void frozenset(Machine& m) {
    m.pop_to_mark();
    m.push_unread(kSet);
  }

  static void binput(Machine& m) { m.keep(m.number(1)); }
  static void long_binput(Machine& m) { m.keep(m.number(4)); }
  static void memoize(Machine& m) { m.keep(m.kept_.size()); }
  static void binget(Machine& m) { m.fetch(m.number(1)); }
  static void long_binget(Machine& m) { m.fetch(m.number(4)); }

  static void global(Machine& m) {
    const std::string_view module = m.line();
    m.push_name(concat(module, ' ', m.line()));
  }
  static void stack_global(Machine& m) {
    const Value name = m.pop();
    const Value module = m.pop();
    if (!std::holds_alternative<Text>(name) || !std::holds_alternative<Text>(module)) {
      throw DataError(concat("a name is made of ", kind_of(module), " and ", kind_of(name)));
    }
    m.push_name(concat(*std::get<Text>(module), ' ', *std::get<Text>(name)));
  }
  static void reduce(Machine& m) { m.call_top(); }
  static void newobj(Machine& m) { m.call_top(); }
  static void newobj_ex(Machine& m) {
    m.pop();  // arguments by name
    m.call_top();
  }
  static void build(Machine& m) { m.build_top(); }
  static void binpersid(Machine& m) {
    const Value id = m.pop();
    m.push(storage_of(id, m.arena_));
  }
};

namespace {

struct Row {
  std::uint8_t code;
  Opcode opcode;
};

constexpr std::array kRead{
    Row{kProtocol, {"PROTO", Opcodes::proto}},
    Row{0x95, {"FRAME", Opcodes::frame}},
    Row{'.', {"STOP", Opcodes::stop}},
    Row{'(', {"MARK", Opcodes::mark}},
    Row{'N', {"NONE", Opcodes::none}},
    Row{0x88, {"NEWTRUE", Opcodes::new_true}},
    Row{0x89, {"NEWFALSE", Opcodes::new_false}},
    Row{'J', {"BININT", Opcodes::binint}},
    Row{'K', {"BININT1", Opcodes::binint1}},
    Row{'M', {"BININT2", Opcodes::binint2}},
    Row{0x8a, {"LONG1", Opcodes::long1}},
    Row{0x8b, {"LONG4", Opcodes::long4}},
    Row{'G', {"BINFLOAT", Opcodes::binfloat}},
    Row{'C', {"SHORT_BINBYTES", Opcodes::short_binbytes}},
    Row{'B', {"BINBYTES", Opcodes::binbytes}},
    Row{0x8e, {"BINBYTES8", Opcodes::binbytes8}},
    Row{0x96, {"BYTEARRAY8", Opcodes::binbytes8}},
    Row{0x8f, {"EMPTY_SET", Opcodes::empty_set}},
    Row{0x90, {"ADDITEMS", Opcodes::additems}},
    Row{0x91, {"FROZENSET", Opcodes::frozenset}},
    Row{0x81, {"NEWOBJ", Opcodes::newobj}},
    Row{0x92, {"NEWOBJ_EX", Opcodes::newobj_ex}},
    Row{0x8c, {"SHORT_BINUNICODE", Opcodes::short_binunicode}},
    Row{'X', {"BINUNICODE", Opcodes::binunicode}},
    Row{0x8d, {"BINUNICODE8", Opcodes::binunicode8}},
    Row{')', {"EMPTY_TUPLE", Opcodes::empty_tuple}},
    Row{'t', {"TUPLE", Opcodes::tuple}},
    Row{0x85, {"TUPLE1", Opcodes::tuple1}},
    Row{0x86, {"TUPLE2", Opcodes::tuple2}},
    Row{0x87, {"TUPLE3", Opcodes::tuple3}},
    Row{']', {"EMPTY_LIST", Opcodes::empty_list}},
    Row{'a', {"APPEND", Opcodes::append}},
    Row{'e', {"APPENDS", Opcodes::appends}},
    Row{'}', {"EMPTY_DICT", Opcodes::empty_dict}},
    Row{'s', {"SETITEM", Opcodes::setitem}},
    Row{'u', {"SETITEMS", Opcodes::setitems}},
    Row{'q', {"BINPUT", Opcodes::binput}},
    Row{'r', {"LONG_BINPUT", Opcodes::long_binput}},
    Row{0x94, {"MEMOIZE", Opcodes::memoize}},
    Row{'h', {"BINGET", Opcodes::binget}},
    Row{'j', {"LONG_BINGET", Opcodes::long_binget}},
    Row{'c', {"GLOBAL", Opcodes::global}},
    Row{0x93, {"STACK_GLOBAL", Opcodes::stack_global}},
    Row{'R', {"REDUCE", Opcodes::reduce}},
    Row{0x81, {"NEWOBJ", Opcodes::newobj}},
    Row{'b', {"BUILD", Opcodes::build}},
    Row{'Q', {"BINPERSID", Opcodes::binpersid}},
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

}  // namespace

const Opcode& opcode_of(std::uint8_t code) { return kTable[code]; }

}  // namespace lockstep::pickle
