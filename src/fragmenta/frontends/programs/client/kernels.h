// A launch that is ready to run.
#pragma once

#include "core.h"

#include <string>

struct Launch {
    Function *kernel;
    Three grid, block, cluster;
    size_t shared;
    bool cooperative;
    std::string parameters;
};
int pack(Launch *launch, void **arguments, void **extra);
int run(const Launch &launch);
int submit(const Launch &launch, Stream *stream);
