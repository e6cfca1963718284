#include "lockstep/formats/export/expression.h"

#include <gtest/gtest.h>

namespace lockstep::exported {
namespace {

TEST(Expression, IsWrittenAsPeopleDo) {
  const std::string s23 = "Symbol('s23', positive=True, integer=True)";
  EXPECT_EQ(plain_expression(s23), "s23");
  EXPECT_EQ(plain_expression("Integer(-1)"), "-1");
  EXPECT_EQ(plain_expression("Mul(Integer(2), " + s23 + ")"), "2*s23");
  EXPECT_EQ(plain_expression("Mul(Integer(2), Add(" + s23 + ", Integer(1)))"), "2*(s23 + 1)");
  EXPECT_EQ(plain_expression("Add(Mul(Integer(2), " + s23 + "), Integer(1))"), "2*s23 + 1");
  EXPECT_EQ(plain_expression("FloorDiv(Add(" + s23 + ", Integer(1)), Integer(2))"),
      "FloorDiv(s23 + 1, 2)");
}

TEST(Expression, OfAnotherFormStaysAsItIs) {
  std::string deep(1'000'000, '(');
  for (std::size_t i = 0; i < deep.size(); i += 2) deep[i] = 'f';
  for (const std::string& text :
      {std::string("s0*2"), std::string("Symbol('s0"), std::string("Add(s0"),
          std::string("Add(s0,,)"), std::string("f(x)y"), std::string(), deep})
    EXPECT_EQ(plain_expression(text), text);
}

}  // namespace
}  // namespace lockstep::exported
