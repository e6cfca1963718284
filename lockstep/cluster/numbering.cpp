#include "lockstep/cluster/numbering.h"

#include <algorithm>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep::cluster {
namespace {

constexpr int kFirstPort = 15000, kPorts = 10000;

/// All that number this process; in doubt the first counts.
std::vector<Numbering> all_numberings(const Surroundings& here) {
  std::vector<Numbering> all;
  for (const auto read :
      {slurm_numbering, open_mpi_numbering, pmi_numbering, mvapich_numbering, lsf_numbering}) {
    if (auto found = read(here)) all.push_back(std::move(*found));
  }
  return all;
}

// mpirun starts one process on each node by srun, and the ranks by those: Slurm has the smaller
// number of them.
bool may_stand_beside(const Numbering& other, const Numbering& chosen) {
  if (other.size < chosen.size) return other.source == "Slurm";
  return other.rank == chosen.rank;
}

}  // namespace

std::string Numbering::in_words() const {
  return concat(rank_variable, " is ", rank, " of ", size_variable, " ", size, " (", source, ")");
}

std::optional<Numbering> numbering(const Surroundings& here) {
  const auto all = all_numberings(here);
  if (all.empty()) {
    const bool by_pmix = here.has("PMIX_RANK") && !here.has("SLURM_JOB_ID") && !here.has("RANK");
    check(!by_pmix, "environment: PMIX_RANK is ", here.text("PMIX_RANK").value_or(""),
        ", but nothing says of how many ranks; set RANK and WORLD_SIZE, or unset it");
    return std::nullopt;
  }
  const auto chosen = std::ranges::max_element(all, {}, &Numbering::size);
  for (const Numbering& other : all) {
    check(may_stand_beside(other, *chosen),
        "environment: this process has two numbers: ", chosen->in_words(), ", but ",
        other.in_words(), "; unset those that are left over");
  }
  return *chosen;
}

int port_of_job(const std::string& job) {
  const bool is_number = job.find_first_not_of("0123456789") == std::string::npos;
  unsigned sum = 0;
  for (const char letter : job) {
    const auto digit =
        static_cast<unsigned>(static_cast<unsigned char>(letter) - (is_number ? '0' : 0));
    sum = is_number ? (sum * 10 + digit) % kPorts : sum * 31 + digit;
  }
  return kFirstPort + static_cast<int>(sum % kPorts);
}

}  // namespace lockstep::cluster
