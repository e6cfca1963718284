#pragma once

namespace lockstep::nn::exported {

struct GraphParts;

/// Note [Fused steps of transformers]
/// Python writes RMSNorm, SwiGLU and rotary positions as many operators, and its attention with a
/// mask, even if it is causal or hides nothing, and, where heads share keys, with repeated keys and
/// values. In timm's image nets there are queries, keys and values that are views of one tensor,
/// and layer scale: a branch times a parameter, plus the residual. Where nothing else reads the
/// values between them, such nodes are one step, which our kernels compute where they can; where
/// not, or where LibTorch is to compute all, it runs the nodes as they are.
///
/// The step stands where the last node stood. This is right if nothing writes to what it reads.
///
/// What a mask lets queries see is found in its values, once for each mask and run: they are made
/// of sizes and positions in many ways. That angles are the same in both halves of a head, as the
/// kernel of rotary positions wants them, is seen in the graph, which makes them of cat([angles,
/// angles]).
///
/// Python's assertions about the values between, of their type and device, go with these.
void fuse_language_steps(GraphParts& graph);

}  // namespace lockstep::nn::exported
