#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/formats/weights/pickle.h"

namespace lockstep::pickle {

/// An interpreter of pickles: a stack of values, marks in it, and values kept by number.
///
/// What is wrong throws DataError with the reason alone, see at().
class Machine {
 public:
  Machine(std::span<const std::uint8_t> bytes, Arena& arena) : bytes_(bytes), arena_(arena) {}

  /// Carries out all opcodes and gives the one value that is left.
  Value run();

  /// Returns where the opcode that is carried out begins.
  std::size_t at() const { return opcode_at_; }

 private:
  friend struct Opcodes;

  void spend(std::uint64_t values);
  std::span<const std::uint8_t> take(std::uint64_t size);
  std::uint64_t number(std::size_t bytes);
  std::string_view line();

  void push(Value value);
  Value pop();
  Value& top();
  std::vector<Value> pop_to_mark();
  Text text_from(std::span<const std::uint8_t> bytes);
  void push_name(std::string name);
  void push_unread(const Name& what);
  void push_tuple(std::vector<Value> items);
  void push_last_as_tuple(std::size_t count);
  void keep(std::uint64_t place);
  void fetch(std::uint64_t place);
  bool is_top_unread();
  void set_items(std::span<const Value> keys_and_values);
  void append_items(std::span<const Value> items);
  void call_top();
  void build_top();

  std::span<const std::uint8_t> bytes_;
  Arena& arena_;
  std::uint64_t values_left_ = kMostValues;
  std::size_t next_ = 0;
  std::size_t opcode_at_ = 0;
  bool has_stopped_ = false;
  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, Value> kept_;
};

class Machine;

inline constexpr std::uint8_t kProtocol = 0x80;

/// An opcode and its effect; those that are known and not read have only a name.
struct Opcode {
  const char* name = "without a meaning";
  void (*run)(Machine&) = nullptr;
};

/// Returns the opcode that a byte stands for.
const Opcode& opcode_of(std::uint8_t code);

}  // namespace lockstep::pickle
