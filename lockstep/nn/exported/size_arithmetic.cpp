#include "lockstep/nn/exported/size_arithmetic.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>

#include "lockstep/core/error.h"

namespace lockstep::nn::exported {
namespace {

using c10::IValue;
using Arguments = std::span<const IValue>;

bool is_whole(const IValue& value) { return value.isInt() || value.isBool(); }

std::int64_t whole(const IValue& value) {
  return value.isBool() ? std::int64_t{value.toBool()} : value.toInt();
}

double real(const IValue& value) {
  return value.isDouble() ? value.toDouble() : static_cast<double>(whole(value));
}

bool truth(const IValue& value) { return is_whole(value) ? whole(value) != 0 : real(value) != 0; }

template <typename Operation>
std::int64_t checked(std::int64_t a, std::int64_t b, const Operation& overflows) {
  std::int64_t result = 0;
  check(!overflows(a, b, &result), "sizes: a number has no place in 64 bits, computed from ", a,
      " and ", b);
  return result;
}

struct Add {
  std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    return checked(a, b, [](auto x, auto y, auto* r) { return __builtin_add_overflow(x, y, r); });
  }
  double operator()(double a, double b) const { return a + b; }
};

struct Subtract {
  std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    return checked(a, b, [](auto x, auto y, auto* r) { return __builtin_sub_overflow(x, y, r); });
  }
  double operator()(double a, double b) const { return a - b; }
};

struct Multiply {
  std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    return checked(a, b, [](auto x, auto y, auto* r) { return __builtin_mul_overflow(x, y, r); });
  }
  double operator()(double a, double b) const { return a * b; }
};

void check_divisor(bool is_zero) { check(!is_zero, "sizes: division by zero"); }

struct FloorDivide {
  std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    check_divisor(b == 0);
    if (b == -1) return Subtract()(std::int64_t{0}, a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  }
  double operator()(double a, double b) const {
    check_divisor(b == 0);
    return std::floor(a / b);
  }
};

struct Remainder {
  std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    check_divisor(b == 0);
    if (b == -1) return 0;
    const std::int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
  double operator()(double a, double b) const {
    check_divisor(b == 0);
    const double rest = std::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
};

struct Largest {
  template <typename Number>
  Number operator()(Number a, Number b) const {
    return std::max(a, b);
  }
};

struct Least {
  template <typename Number>
  Number operator()(Number a, Number b) const {
    return std::min(a, b);
  }
};

// Of two whole numbers, or of two floating-point ones where one of them is so.
template <typename Operation>
IValue with_two(Arguments arguments) {
  const IValue &a = arguments[0], &b = arguments[1];
  if (is_whole(a) && is_whole(b)) return Operation()(whole(a), whole(b));
  return Operation()(real(a), real(b));
}

template <typename Operation>
IValue of_wholes(Arguments arguments) {
  return Operation()(whole(arguments[0]), whole(arguments[1]));
}

// Truths stay truths.
template <typename Operation>
IValue of_bits(Arguments arguments) {
  const IValue result = of_wholes<Operation>(arguments);
  const bool are_truths = arguments[0].isBool() && arguments[1].isBool();
  return are_truths ? IValue(result.toInt() != 0) : result;
}

IValue power(Arguments arguments) {
  const IValue &base = arguments[0], &exponent = arguments[1];
  if (!is_whole(base) || !is_whole(exponent) || whole(exponent) < 0)
    return std::pow(real(base), real(exponent));
  const std::int64_t factor = whole(base);
  if (factor == 0 || factor == 1) return whole(exponent) == 0 ? 1 : factor;
  if (factor == -1) return whole(exponent) % 2 == 0 ? 1 : -1;
  std::int64_t product = 1;
  for (std::int64_t i = 0; i < whole(exponent); ++i) product = Multiply()(product, factor);
  return product;
}

IValue shifted_left(Arguments arguments) {
  const std::int64_t bits = whole(arguments[1]);
  check(bits >= 0 && bits < 63, "sizes: a shift by ", bits, " bits");
  return Multiply()(whole(arguments[0]), std::int64_t{1} << bits);
}

IValue shifted_right(Arguments arguments) {
  const std::int64_t bits = whole(arguments[1]);
  check(bits >= 0, "sizes: a shift by ", bits, " bits");
  return whole(arguments[0]) >> std::min<std::int64_t>(bits, 63);
}

IValue divided(Arguments arguments) {
  check_divisor(real(arguments[1]) == 0);
  return real(arguments[0]) / real(arguments[1]);
}

IValue negative(Arguments arguments) {
  if (is_whole(arguments[0])) return Subtract()(std::int64_t{0}, whole(arguments[0]));
  return -real(arguments[0]);
}

template <double (*kRound)(double)>
IValue rounded(Arguments arguments) {
  if (is_whole(arguments[0])) return whole(arguments[0]);
  const double number = kRound(real(arguments[0]));
  check(std::abs(number) < 0x1p63, "sizes: no whole number of 64 bits: ", number);
  return static_cast<std::int64_t>(number);
}

IValue chosen(Arguments arguments) { return truth(arguments[0]) ? arguments[1] : arguments[2]; }

constexpr NamedNumberFunction kFunctions[] = {
    {"_operator.add", 2, with_two<Add>},
    {"_operator.sub", 2, with_two<Subtract>},
    {"_operator.mul", 2, with_two<Multiply>},
    {"_operator.floordiv", 2, with_two<FloorDivide>},
    {"_operator.mod", 2, with_two<Remainder>},
    {"_operator.truediv", 2, divided},
    {"_operator.pow", 2, power},
    {"_operator.neg", 1, negative},
    {"_operator.pos", 1, [](Arguments a) -> IValue { return a[0]; }},
    {"_operator.lshift", 2, shifted_left},
    {"_operator.rshift", 2, shifted_right},
    {"_operator.and_", 2, of_bits<std::bit_and<>>},
    {"_operator.or_", 2, of_bits<std::bit_or<>>},
    {"_operator.eq", 2, with_two<std::equal_to<>>},
    {"_operator.ne", 2, with_two<std::not_equal_to<>>},
    {"_operator.lt", 2, with_two<std::less<>>},
    {"_operator.le", 2, with_two<std::less_equal<>>},
    {"_operator.gt", 2, with_two<std::greater<>>},
    {"_operator.ge", 2, with_two<std::greater_equal<>>},
    {"math.trunc", 1, rounded<std::trunc>},
    {"math.floor", 1, rounded<std::floor>},
    {"math.ceil", 1, rounded<std::ceil>},
    {"torch._sym_sqrt", 1, [](Arguments a) -> IValue { return std::sqrt(real(a[0])); }},
    {"torch.sym_int", 1, rounded<std::trunc>},
    {"torch.sym_float", 1, [](Arguments a) -> IValue { return real(a[0]); }},
    {"torch.sym_not", 1, [](Arguments a) -> IValue { return !truth(a[0]); }},
    {"torch.sym_max", 2, with_two<Largest>},
    {"torch.sym_min", 2, with_two<Least>},
    {"torch.sym_ite", 3, chosen},
    // Operators too, which the dispatcher calls at ten times the price.
    {"torch.ops.aten.sym_size.int", 2,
        [](Arguments a) -> IValue { return a[0].toTensor().size(a[1].toInt()); }},
    {"torch.ops.aten.sym_stride.int", 2,
        [](Arguments a) -> IValue { return a[0].toTensor().stride(a[1].toInt()); }},
    {"torch.ops.aten.sym_numel.default", 1,
        [](Arguments a) -> IValue { return a[0].toTensor().numel(); }},
    {"torch.ops.aten.sym_storage_offset.default", 1,
        [](Arguments a) -> IValue { return a[0].toTensor().storage_offset(); }},
};

}  // namespace

const NamedNumberFunction* find_number_function(std::string_view target) {
  const auto* const found = std::ranges::find(kFunctions, target, &NamedNumberFunction::target);
  return found == std::end(kFunctions) ? nullptr : found;
}

}  // namespace lockstep::nn::exported
