// The half of numbering.h that knows mpirun, mpiexec and jsrun.

#include <sstream>

#include "lockstep/cluster/numbering.h"
#include "lockstep/core/error.h"

namespace lockstep::cluster {
namespace {

/// The names by which a program that starts ranks numbers them.
struct Names {
  const char* source;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr Names kOpenMpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kPmi{
    "MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr Names kMvapich{"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kLsf{"LSF", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK",
    "JSM_NAMESPACE_LOCAL_SIZE"};

void check_below(int value, int size, const char* name, const char* of) {
  check(value < size, "environment: ", name, " must be below ", of, ": ", value, " of ", size);
}

// Of several on a node the number of the node is not known.
void find_node(Numbering& found) {
  if (found.local_size == found.size) {
    found.nodes = 1;
  } else if (found.local_size == 1) {
    found.node = found.rank;
    found.nodes = found.size;
  }
}

std::optional<Numbering> numbered_by(const Names& names, const Surroundings& here) {
  const auto rank = here.count(names.rank), size = here.count(names.size, 1);
  if (!rank) return std::nullopt;
  check(size.has_value(), "environment: ", names.rank, " is set, but ", names.size,
      " is not; unset the one, or set RANK and WORLD_SIZE");
  check_below(*rank, *size, names.rank, names.size);
  Numbering found{.source = names.source,
      .rank_variable = names.rank,
      .size_variable = names.size,
      .rank = *rank,
      .size = *size};
  found.local_rank = here.count(names.local_rank).value_or(0);
  found.local_size = here.count(names.local_size, 1).value_or(*size == 1 ? 1 : 0);
  if (found.local_size > 0)
    check_below(found.local_rank, found.local_size, names.local_rank, names.local_size);
  find_node(found);
  return found;
}

// The first line of the rank file is the host that launches, which has no rank.
std::string first_host_of_lsf(const Surroundings& here) {
  const auto path = here.text("LSB_DJOB_RANKFILE");
  const auto text = path && here.read_file ? here.read_file(*path) : std::nullopt;
  std::istringstream lines(text.value_or(""));
  std::string launcher, first;
  lines >> launcher >> first;
  return first;
}

}  // namespace

std::optional<Numbering> open_mpi_numbering(const Surroundings& here) {
  auto found = numbered_by(kOpenMpi, here);
  const auto job = here.text("PMIX_NAMESPACE");
  if (!found || !job) return found;
  found->job = concat("mpirun-", *job);
  found->port = port_of_job(*job);
  return found;
}

std::optional<Numbering> pmi_numbering(const Surroundings& here) { return numbered_by(kPmi, here); }

std::optional<Numbering> mvapich_numbering(const Surroundings& here) {
  return numbered_by(kMvapich, here);
}

std::optional<Numbering> lsf_numbering(const Surroundings& here) {
  auto found = numbered_by(kLsf, here);
  if (!found) return found;
  found->first_host = first_host_of_lsf(here);
  if (const auto job = here.text("LSB_JOBID")) {
    found->job = concat("lsf-", *job);
    found->port = port_of_job(*job);
  }
  return found;
}

}  // namespace lockstep::cluster
