// Shared memory that the server gives, for other parts of the client.
#pragma once

#include "core.h"

// Whether memory of the server could be mapped at its address.
bool adopt(uint64_t address, size_t bytes, Kind kind, int file, bool variable);
void release_all();
int belong_to_graph(void *where, bool live);  // whether it is allocated now
