//! What the model is sure of without a kernel.
