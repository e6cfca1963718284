#include <string>

#include "tests/fuzz/fuzz.h"

#include "lockstep/cluster/node_list.h"
#include "lockstep/core/text.h"

namespace {

using lockstep::cluster::expand_node_list;
using lockstep::cluster::kMostNodes;

using lockstep::testing::is_taken;
using lockstep::testing::require;

/// A list of plain names stands for itself.
void check_hosts(const std::string& text) {
  const auto hosts = expand_node_list(text);
  require(!hosts.empty() && hosts.size() <= kMostNodes);
  const std::string plain = lockstep::joined(hosts, ",");
  if (plain.size() <= 1 << 20) require(expand_node_list(plain) == hosts);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using lockstep::InvalidArgument;
  const std::string text = lockstep::testing::text_of(data, size);
  is_taken<InvalidArgument>([&] { check_hosts(text); });
  is_taken<InvalidArgument>(
      [&] { require(lockstep::cluster::expand_task_counts(text).size() <= kMostNodes); });
  return 0;
}
