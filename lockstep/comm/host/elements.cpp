#include "lockstep/comm/host/elements.h"

#include "lockstep/core/error.h"

namespace lockstep::host {

reduce::Element reduce_element(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return reduce::Element::kFloat;
    case at::kDouble:
      return reduce::Element::kDouble;
    case at::kHalf:
      return reduce::Element::kHalf;
    case at::kBFloat16:
      return reduce::Element::kBFloat16;
    case at::kChar:
      return reduce::Element::kInt8;
    case at::kByte:
      return reduce::Element::kUInt8;
    case at::kShort:
      return reduce::Element::kInt16;
    case at::kInt:
      return reduce::Element::kInt32;
    case at::kLong:
      return reduce::Element::kInt64;
    default:
      throw InvalidArgument(
          concat("reduce: elements of this type cannot be reduced: ", c10::toString(type)));
  }
}

}  // namespace lockstep::host
