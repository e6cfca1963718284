#include <cstdint>
#include <cstdlib>
#include <string>

#include "lockstep/cluster/node_list.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace {

using lockstep::cluster::expand_node_list;
using lockstep::cluster::kMostNodes;

void require(bool condition) {
  if (!condition) std::abort();
}

/// A list of plain names stands for itself.
void check_hosts(const std::string& text) {
  const auto hosts = expand_node_list(text);
  require(!hosts.empty() && hosts.size() <= kMostNodes);
  const std::string plain = lockstep::joined(hosts, ",");
  if (plain.size() <= 1 << 20) require(expand_node_list(plain) == hosts);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    check_hosts(text);
  } catch (const lockstep::InvalidArgument&) {
  }
  try {
    require(lockstep::cluster::expand_task_counts(text).size() <= kMostNodes);
  } catch (const lockstep::InvalidArgument&) {
  }
  return 0;
}
