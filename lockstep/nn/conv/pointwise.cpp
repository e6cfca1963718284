// Note [1x1 convolutions of few images]
//
// On one thread LibTorch leaves 1x1 convolutions of fewer than 16 images to a matrix product that
// copies both factors (ATen/native/Convolution.cpp, use_mkldnn), forward and backward; oneDNN reads
// channels-last images where they lie. A pixel does not look at its neighbours, so rows may count
// as images: the same products, and LibTorch chooses oneDNN.

#include "lockstep/nn/conv/pointwise.h"

namespace lockstep::nn::conv {
namespace {

constexpr std::int64_t kFewestImages = 16;  // of which LibTorch lets oneDNN compute

at::Tensor with_images(const at::Tensor& images, std::int64_t count, std::int64_t height) {
  return images.permute({0, 2, 3, 1})
      .reshape({count, height, images.size(3), images.size(1)})
      .permute({0, 3, 1, 2});
}

}  // namespace

std::int64_t parts_of_image(std::int64_t images, std::int64_t height) {
  if (images <= 0 || images >= kFewestImages) return 1;
  for (std::int64_t parts = 2; parts <= height; ++parts) {
    if (height % parts == 0 && images * parts >= kFewestImages) return parts;
  }
  return 1;
}

at::Tensor cut_rows(const at::Tensor& images, std::int64_t parts) {
  return with_images(images, images.size(0) * parts, images.size(2) / parts);
}

at::Tensor join_rows(const at::Tensor& parts_of_images, std::int64_t parts) {
  return with_images(
      parts_of_images, parts_of_images.size(0) / parts, parts_of_images.size(2) * parts);
}

}  // namespace lockstep::nn::conv
