#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {

Box ImageTransform::region(ImageSize size, const SampleKey& /*key*/) const {
  return {0, 0, size.width, size.height};
}

}  // namespace lockstep::data
