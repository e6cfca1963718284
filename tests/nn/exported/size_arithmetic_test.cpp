#include "lockstep/nn/exported/size_arithmetic.h"

#include <gtest/gtest.h>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/ops/zeros.h>

#include "lockstep/core/error.h"

namespace lockstep::nn::exported {
namespace {

using c10::IValue;

IValue result_of(const std::string& target, const std::vector<IValue>& arguments) {
  const NamedNumberFunction* const found = find_number_function(target);
  if (found == nullptr || found->arguments != arguments.size()) {
    ADD_FAILURE() << target;
    return {};
  }
  return found->function(arguments);
}

struct Case {
  const char* target;
  std::vector<IValue> arguments;
  IValue expected;
};

std::ostream& operator<<(std::ostream& out, const Case& each) { return out << each.target; }

class SizeArithmetic : public ::testing::TestWithParam<Case> {};

// The expected values are Python's.
TEST_P(SizeArithmetic, IsPythons) {
  const auto& [target, arguments, expected] = GetParam();
  const IValue result = result_of(target, arguments);
  EXPECT_EQ(result.tagKind(), expected.tagKind());
  EXPECT_TRUE(result == expected) << result << " is not " << expected;
}

INSTANTIATE_TEST_SUITE_P(Functions, SizeArithmetic,
    ::testing::Values(Case{"_operator.add", {2, 3}, 5}, Case{"_operator.add", {2, 0.5}, 2.5},
        Case{"_operator.sub", {2, 3}, -1}, Case{"_operator.mul", {true, 3}, 3},
        Case{"_operator.floordiv", {-7, 2}, -4}, Case{"_operator.floordiv", {7, -2}, -4},
        Case{"_operator.floordiv", {7.5, 2}, 3.0}, Case{"_operator.floordiv", {5, -1}, -5},
        Case{"_operator.mod", {-7, 3}, 2}, Case{"_operator.mod", {7, -3}, -2},
        Case{"_operator.mod", {-7.5, 2}, 0.5}, Case{"_operator.truediv", {6, 4}, 1.5},
        Case{"_operator.pow", {3, 4}, 81}, Case{"_operator.pow", {-1, 1001}, -1},
        Case{"_operator.pow", {2, -1}, 0.5}, Case{"_operator.neg", {4}, -4},
        Case{"_operator.pos", {4}, 4}, Case{"_operator.lshift", {3, 2}, 12},
        Case{"_operator.rshift", {-5, 1}, -3}, Case{"_operator.and_", {true, false}, false},
        Case{"_operator.or_", {4, 1}, 5}, Case{"_operator.eq", {2, 2.0}, true},
        Case{"_operator.ne", {2, 2}, false}, Case{"_operator.lt", {1, 2}, true},
        Case{"_operator.le", {2, 2}, true}, Case{"_operator.gt", {1, 2}, false},
        Case{"_operator.ge", {2.5, 2}, true}, Case{"math.trunc", {-1.5}, -1},
        Case{"math.floor", {-1.5}, -2}, Case{"math.ceil", {1.5}, 2},
        Case{"torch._sym_sqrt", {9}, 3.0}, Case{"torch.sym_int", {2.9}, 2},
        Case{"torch.sym_float", {2}, 2.0}, Case{"torch.sym_not", {false}, true},
        Case{"torch.sym_max", {2, 3}, 3}, Case{"torch.sym_min", {2, 1.5}, 1.5},
        Case{"torch.sym_ite", {true, 1, 2}, 1}));

TEST(SizeArithmetic, AsksTensors) {
  const auto tensor = at::zeros({2, 3, 4}).transpose(0, 2);
  EXPECT_EQ(result_of("torch.ops.aten.sym_size.int", {tensor, -1}).toInt(), 2);
  EXPECT_EQ(result_of("torch.ops.aten.sym_stride.int", {tensor, 0}).toInt(), 1);
  EXPECT_EQ(result_of("torch.ops.aten.sym_numel.default", {tensor}).toInt(), 24);
  EXPECT_EQ(result_of("torch.ops.aten.sym_storage_offset.default", {tensor[1]}).toInt(), 1);
}

TEST(SizeArithmetic, RefusesWhatHasNoAnswer) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(result_of("_operator.floordiv", {1, 0}), InvalidArgument);
  EXPECT_THROW(result_of("_operator.mod", {1, 0}), InvalidArgument);
  EXPECT_THROW(result_of("_operator.truediv", {1, 0}), InvalidArgument);
  EXPECT_THROW(result_of("_operator.add", {kMost, 1}), InvalidArgument);
  EXPECT_THROW(result_of("_operator.mul", {kMost, 2}), InvalidArgument);
  EXPECT_THROW(result_of("_operator.neg", {-kMost - 1}), InvalidArgument);
  EXPECT_THROW(result_of("_operator.pow", {3, kMost}), InvalidArgument);
  EXPECT_THROW(result_of("_operator.lshift", {1, 64}), InvalidArgument);
  EXPECT_THROW(result_of("math.trunc", {1e30}), InvalidArgument);
  EXPECT_EQ(find_number_function("_operator.getattr"), nullptr);
}

}  // namespace
}  // namespace lockstep::nn::exported
