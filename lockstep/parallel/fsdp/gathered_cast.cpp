#include "lockstep/parallel/fsdp/gathered_cast.h"

#include <optional>
#include <typeinfo>

#include <ATen/ops/_to_copy.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/parallel/operators/operator_rules.h"

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Marks memory that is not there.
void keep_cast(void* /*cast*/) {}

const GatheredCast* cast_for(const torch::Tensor& tensor) {
  if (!tensor.has_storage()) return nullptr;
  const at::DataPtr& memory =
      tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  if (memory.get_deleter() != &keep_cast) return nullptr;
  return static_cast<const GatheredCast*>(memory.get_context());
}

struct CastOfGathered : torch::autograd::Function<CastOfGathered> {
  static torch::Tensor forward(
      AutogradContext* /*context*/, const torch::Tensor& parameter, const GatheredCast* cast) {
    return at::empty({0}, cast->options)
        .set_(cast->storage, parameter.storage_offset(), parameter.sizes(), parameter.strides());
  }

  static variable_list backward(AutogradContext* /*context*/, const variable_list& gradients) {
    return {gradients[0].to(torch::kFloat), torch::Tensor()};
  }
};

torch::Tensor cast_gathered(c10::DispatchKeySet keys, const torch::Tensor& self,
    std::optional<at::ScalarType> type, std::optional<at::Layout> layout,
    std::optional<at::Device> device, std::optional<bool> pinned, bool non_blocking,
    std::optional<at::MemoryFormat> format) {
  const GatheredCast* const cast = cast_for(self);
  const bool keeps_strides = !format || *format == at::MemoryFormat::Preserve;
  if (cast != nullptr && type == cast->options.dtype().toScalarType() && keeps_strides &&
      (!device || *device == self.device()))
    return CastOfGathered::apply(self, cast);
  const c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER, kOperatorRules);
  return at::_ops::_to_copy::redispatch(
      keys & below, self, type, layout, device, pinned, non_blocking, format);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("_to_copy", TORCH_FN(cast_gathered));
}

void stand_in(const torch::Storage& storage, GatheredCast& cast) {
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
      at::DataPtr(nullptr, &cast, &keep_cast, storage.device()));
}

bool autocast_casts(const torch::nn::Module& module) {
  const std::type_info& type = typeid(module);
  return type == typeid(torch::nn::LinearImpl) || type == typeid(torch::nn::Conv1dImpl) ||
         type == typeid(torch::nn::Conv2dImpl) || type == typeid(torch::nn::Conv3dImpl);
}

}  // namespace lockstep
