#pragma once

#include <string>

namespace lockstep::launch {

/// Says in a line why several hosts cannot be made within this machine, and what to do; empty when
/// they can. It tries in a process of its own, once.
const std::string& hosts_missing();

}  // namespace lockstep::launch
