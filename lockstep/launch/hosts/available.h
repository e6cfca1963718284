#pragma once

#include <string>

namespace lockstep::launch {

/// Returns a line that says why several hosts cannot be made within this machine, and what to do;
/// empty when they can. It tries once, in a separate process.
const std::string& hosts_missing();

}  // namespace lockstep::launch
