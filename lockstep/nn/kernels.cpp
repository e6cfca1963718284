// Note [Operators of any module]
//
// C++ modules hold their layers by type, so a layer inside a user's block cannot be replaced; the
// operator that it calls can. LibTorch's conv2d, conv_transpose2d, batch_norm, linear, matmul
// (which torch::nn::Linear calls), lstm, attention, rms_norm, layer_norm and dropout are composed
// of others and have no kernel for the CPU: ours take that place, above and below autograd, in the
// whole process and all its threads, when they are first asked for. From then on a variable says
// who computes. Autocast stands above and has cast the arguments.

#include "lockstep/nn/kernels.h"

#include <atomic>
#include <mutex>
#include <vector>

#include <torch/library.h>

#include "lockstep/nn/conv/convolution.h"
#include "lockstep/nn/conv/faster_kinds.h"
#include "lockstep/nn/conv/transposed.h"
#include "lockstep/nn/fused/attention.h"
#include "lockstep/nn/fused/batch_norm_relu.h"
#include "lockstep/nn/fused/dropout.h"
#include "lockstep/nn/fused/layer_norm.h"
#include "lockstep/nn/fused/lstm.h"
#include "lockstep/nn/fused/rms_norm.h"
#include "lockstep/nn/linear/linear.h"

namespace lockstep::nn {
namespace {

std::atomic<Kernels> who_computes{Kernels::kLibTorch};

// Ranks may be threads, whose scopes end in any order.
std::mutex scopes_mutex;
std::vector<const KernelScope*> scopes;

void follow_newest() { who_computes = scopes.empty() ? Kernels::kLibTorch : scopes.back()->who(); }

void take_places_of_libtorchs() {
  using torch::Library;
  static Library above(Library::IMPL, "aten", c10::DispatchKey::AutogradCPU, __FILE__, __LINE__);
  static Library below(Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  static const bool kTaken = [] {
    for (Library* library : {&above, &below}) {
      library->impl("conv2d", conv::dispatched_conv2d);
      library->impl("conv_transpose2d.input", conv::dispatched_conv_transpose2d);
      library->impl("batch_norm", fused::dispatched_batch_norm);
      library->impl("linear", linear::dispatched_linear);
      library->impl("matmul", linear::dispatched_matmul);
      library->impl("dropout", fused::dispatched_dropout);
      library->impl("lstm.input", fused::dispatched_lstm);
      library->impl("rms_norm", fused::dispatched_rms_norm);
      library->impl("layer_norm", fused::dispatched_layer_norm);
      library->impl("scaled_dot_product_attention", fused::dispatched_attention);
    }
    return true;
  }();
  static_cast<void>(kTaken);
}

}  // namespace

// What `auto` may have to measure is measured before there is a graph.
KernelScope::KernelScope(Kernels who) : who_(who) {
  if (who == Kernels::kAuto) conv::faster_kinds();
  if (who != Kernels::kLibTorch) take_places_of_libtorchs();
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
