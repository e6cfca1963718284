#pragma once

#include <string>

namespace lockstep::exported {

/// Returns an expression of SymPy as people write it: `2*s23` for
/// `Mul(Integer(2), Symbol('s23', positive=True, integer=True))`. Another text is returned as it
/// is.
std::string plain_expression(const std::string& text);

}  // namespace lockstep::exported
