#include "lockstep/comm/forgotten_init.h"

#include <atomic>
#include <cstdio>
#include <string>

#include "lockstep/core/environment.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

std::atomic<bool> settled = false;

}  // namespace

void note_init() { settled = true; }

void warn_if_init_is_forgotten() {
  if (settled || settled.exchange(true)) return;
  const std::string size = system_variable("WORLD_SIZE");
  if (parse_number<int>(size).value_or(1) <= 1) return;
  std::fprintf(stderr,
      "lockstep: WORLD_SIZE is %s, but this process uses a group of one: every rank works alone. "
      "Write `auto world = lockstep::init_process_group();` in place of a default-constructed "
      "ProcessGroup, or unset WORLD_SIZE.\n",
      size.c_str());
}

}  // namespace lockstep
