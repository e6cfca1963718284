#include "lockstep/cli/env/environment_facts.h"

#include "lockstep/cli/env/build_facts.h"
#include "lockstep/core/environment.h"

namespace lockstep::cli {
namespace {

/// Lists the variables that change how fast or where ranks run.
Facts variables() {
  Facts facts = Facts::object();
  for (const char* name :
       {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_PROC_BIND", "KMP_AFFINITY", "LD_PRELOAD",
        "GLIBC_TUNABLES", "CUDA_VISIBLE_DEVICES", "ONEDNN_MAX_CPU_ISA", "RANK", "WORLD_SIZE"}) {
    if (const auto value = environment(name)) facts[name] = *value;
  }
  return facts;
}

}  // namespace

Facts environment_facts() {
  Facts facts{{"v", 1}, {"build", build_facts()}};
  facts.update(host_facts());
  facts["variables"] = variables();
  return facts;
}

}  // namespace lockstep::cli
