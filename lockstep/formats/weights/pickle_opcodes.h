#pragma once

#include <cstdint>

namespace lockstep::pickle {

class Machine;

inline constexpr std::uint8_t kProtocol = 0x80;

/// Says what an opcode does; those that are known and not read have only a name.
struct Opcode {
  const char* name = "without a meaning";
  void (*run)(Machine&) = nullptr;
};

/// Gives the opcode that a byte stands for.
const Opcode& opcode_of(std::uint8_t code);

}  // namespace lockstep::pickle
