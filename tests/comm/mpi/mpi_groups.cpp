// The groups of tests that mpirun has started, each process of which runs all of them.

#include <stdexcept>

#include "tests/comm/group_factory.h"

#include "lockstep/comm/mpi/mpi_backend.h"

namespace lockstep::testing {
namespace {

ProcessGroup world() {
  static ProcessGroup group = init_mpi_process_group(std::chrono::seconds(60));
  return group;
}

}  // namespace

std::vector<std::string> backends_to_test() { return {"mpi"}; }

// The first ranks run it, the others wait.
void run_group(
    const std::string& backend, int size, const std::function<void(ProcessGroup)>& body) {
  const ProcessGroup all = world();
  if (backend != "mpi" || all.size() < size) throw std::runtime_error("start it by mpirun -np 4");
  const bool takes_part = all.rank() < size;
  const ProcessGroup part = all.split(takes_part ? 0 : 1, all.rank());
  if (takes_part) body(part);
  all.barrier().wait();
}

}  // namespace lockstep::testing
