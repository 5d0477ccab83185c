"""The results of instructions and of whole matrices, and explanations of them."""
