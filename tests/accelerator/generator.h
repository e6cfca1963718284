#pragma once

#include <cstdint>

#include <ATen/core/Generator.h>

namespace lockstep::emulated {

/// A device's random numbers: each kernel that draws gets a generator of its own, made of the seed
/// and the number of kernels that drew before, when it is queued.
class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex device);

  /// Returns the CPU generator for the next kernel.
  at::Generator next();

  void set_current_seed(std::uint64_t seed) override;
  std::uint64_t current_seed() const override { return seed_; }
  std::uint64_t seed() override;
  void set_offset(std::uint64_t offset) override { offset_ = offset; }
  std::uint64_t get_offset() const override { return offset_; }
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

 private:
  Generator* clone_impl() const override;

  std::uint64_t seed_ = c10::default_rng_seed_val;
  std::uint64_t offset_ = 0;
};

/// Returns the generator that a device uses where none is given.
const at::Generator& default_generator(c10::DeviceIndex device);

}  // namespace lockstep::emulated
