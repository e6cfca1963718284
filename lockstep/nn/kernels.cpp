// Note [Operators of any module]
//
// C++ modules hold their layers by type, so a layer inside a user's block cannot be replaced; the
// operator that it calls can. LibTorch's conv2d and batch_norm are composed of others and have no
// kernel for the CPU: ours take that place, above and below autograd, in the whole process and all
// its threads, when they are first asked for. From then on a variable says who computes. Autocast
// stands above and has cast the arguments.

#include "lockstep/nn/kernels.h"

#include <atomic>
#include <mutex>
#include <vector>

#include "lockstep/nn/conv/convolution.h"
#include "lockstep/nn/fused/batch_norm_relu.h"

namespace lockstep::nn {
namespace {

std::atomic<Kernels> who_computes{Kernels::kLibTorch};

// Ranks may be threads, whose scopes end in any order.
std::mutex scopes_mutex;
std::vector<const KernelScope*> scopes;

void follow_newest() { who_computes = scopes.empty() ? Kernels::kLibTorch : scopes.back()->who(); }

}  // namespace

KernelScope::KernelScope(Kernels who) : who_(who) {
  if (who != Kernels::kLibTorch) {
    conv::take_place_of_conv2d();
    fused::take_place_of_batch_norm();
  }
  const std::lock_guard lock(scopes_mutex);
  scopes.push_back(this);
  follow_newest();
}

KernelScope::~KernelScope() {
  const std::lock_guard lock(scopes_mutex);
  std::erase(scopes, this);
  follow_newest();
}

Kernels kernels_in_use() { return who_computes; }

}  // namespace lockstep::nn
