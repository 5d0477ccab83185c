// What a stream is given is done at once, or becomes a node of a graph.
#pragma once

#include "core.h"

#include <functional>

// The types of nodes, with CUDA's numbers.
enum NodeType { KERNEL_NODE = 0, COPIED = 1, FILLED = 2, HOSTED = 3, CHILD = 4, EMPTY = 5, WAITED = 6, RECORDED = 7, ALLOCATED = 10, FREED = 11 };

using Task = std::function<int()>;
int submit(Stream *stream, NodeType type, Task task);
int forbidden_while_capturing();  // an error if a capture does not allow what may wait
