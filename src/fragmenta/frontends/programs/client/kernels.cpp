// Modules, kernels and launches.
#include "graphs.h"
#include "images.h"
#include "kernels.h"
#include "memory.h"
#include "server.h"

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

struct Module {
    std::string image;           // empty while the program still has it
    const void *place = nullptr; // of the program
    const void *wrapper = nullptr;
    uint64_t handle = 0;
    int error = OK;
    std::map<std::string, std::unique_ptr<Function>> kernels;
};

struct Function {
    Module *module;
    std::string name;
    uint64_t handle = 0;
    int error = OK;
    std::vector<uint32_t> offsets, sizes;
    FunctionAttributes about{};
    int dynamic_most = 0;        // bytes of dynamic shared memory that it may have
    Three set_block{1, 1, 1};    // what cuFuncSetBlockShape and its kin have set
    unsigned set_shared = 0;
    std::string set_parameters;
};

namespace {
struct Variable { Module *module; std::string name; void *address; size_t bytes; void **managed; };
struct Registry {
    std::map<const void *, Function *> kernels;
    std::map<const void *, Variable> variables;
    std::map<Function *, bool> known;
    std::vector<std::unique_ptr<Module>> modules;
};
Registry &registry() { static auto *made = new Registry; return *made; }

int send(Module *module) {
    if (module->handle || module->error) return module->error;
    const void *image = module->place ? module->place : module->image.data();
    size_t bytes = module->place ? image_size(image) : module->image.size();
    auto parts = module->wrapper ? relocatable(module->wrapper) : std::vector<const void *>{};
    Answer answer;
    if (parts.empty()) module->error = ask(LOAD, {}, image, bytes, &answer);
    else module->error = ask(LOAD, {parts.size()}, together(parts), &answer);
    module->handle = answer[0];
    return module->error;
}

Function *kernel_in(Module *module, const char *name) {
    auto &made = module->kernels[name];
    if (!made) {
        made.reset(new Function{module, name});
        registry().known[made.get()] = true;
    }
    return made.get();
}

// Asks the server about a kernel when it is first used.
int prepare(Function *kernel) {
    if (kernel->handle || kernel->error) return kernel->error;
    if (int error = send(kernel->module)) return kernel->error = error;
    Answer answer;
    kernel->error = ask(KERNEL, {kernel->module->handle}, kernel->name, &answer);
    if (kernel->error) return kernel->error;
    kernel->handle = answer[0];
    size_t count = answer[1];
    kernel->offsets.resize(count), kernel->sizes.resize(count);
    memcpy(kernel->offsets.data(), answer.data.data(), 4 * count);
    memcpy(kernel->sizes.data(), answer.data.data() + 4 * count, 4 * count);
    FunctionAttributes &about = kernel->about;
    about.shared = answer[2], about.constant = answer[3], about.local = answer[4];
    about.threads = answer[5], about.registers = answer[6];
    about.ptx = answer[7], about.binary = answer[8];
    for (int axis = 0; axis < 3; axis++) about.cluster[axis] = answer[9 + axis];
    about.cluster_must_be_set = about.cluster[0] > 0, about.carveout = -1;
    kernel->dynamic_most = about.dynamic = 49152 - (int)about.shared;
    return OK;
}

// The kernel of a symbol of the host, or of a handle.
Function *lookup(const void *symbol) {
    auto found = registry().kernels.find(symbol);
    if (found != registry().kernels.end()) return found->second;
    return registry().known.count((Function *)symbol) ? (Function *)symbol : nullptr;
}

int known(Function **where, const void *symbol) {
    if (int error = failed()) return error;
    *where = lookup(symbol);
    return *where ? prepare(*where) : (int)INVALID_DEVICE_FUNCTION;
}
}  // namespace

// ── modules ─────────────────────────────────────────────────────────────────

void **register_fat_binary(const void *wrapper) {
    auto *made = new Module;
    made->place = unwrapped(wrapper), made->wrapper = wrapper;
    registry().modules.emplace_back(made);
    return (void **)made;
}

void unregister(void **) {}  // a program does so when it ends

void register_function(void **module, const void *host, const char *name) {
    registry().kernels[host] = kernel_in((Module *)module, name);
}

void register_variable(void **module, const void *host, const char *name, void **managed) {
    registry().variables[host] = {(Module *)module, name, nullptr, 0, managed};
}

int load(Module **where, const void *image) {
    if (int error = failed()) return error;
    if (!where || !image) return INVALID_VALUE;
    auto made = std::make_unique<Module>();
    image = unwrapped(image);
    made->image.assign((const char *)image, image_size(image));
    if (int error = send(made.get())) return error;
    *where = made.get();
    registry().modules.push_back(std::move(made));
    return OK;
}

int load_file(Module **where, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return 301;  // file not found
    std::string data;
    char part[65536];
    while (size_t got = fread(part, 1, sizeof part, file)) data.append(part, got);
    fclose(file);
    return load(where, data.c_str());
}

int unload(Module *module) {
    for (auto &each : registry().modules)
        if (each.get() == module) return ask(UNLOAD, {module->handle});
    return INVALID_HANDLE;
}

int find_kernel(Function **where, Module *module, const char *name) {
    if (int error = failed()) return error;
    if (!where || !name) return INVALID_VALUE;
    Function *found = kernel_in(module, name);
    int error = prepare(found);
    if (error == NOT_FOUND) found->error = OK;
    return error ? error : put(where, found);
}

int count_kernels(unsigned *where, Module *module) {
    Answer answer;
    int error = ask(KERNEL, {module->handle, 1}, "", &answer);
    return error ? error : put(where, answer[1]);
}

static int variable(void **where, size_t *bytes, Module *module, const std::string &name) {
    if (int error = failed()) return error;
    if (int error = send(module)) return error;
    Answer answer;
    if (int error = ask(VARIABLE, {module->handle}, name, &answer)) return error;
    if (answer.file >= 0) {
        bool fine = adopt(answer[0], answer[1], answer[2] ? MANAGED : DEVICE, answer.file, true);
        close(answer.file);
        if (!fine) return OUT_OF_MEMORY;
    }
    if (where) *where = (void *)answer[0];
    if (bytes) *bytes = answer[1];
    return OK;
}

int find_variable(void **where, size_t *bytes, Module *module, const char *name) {
    return variable(where, bytes, module, name);
}

int symbol(void **where, size_t *bytes, const void *host) {
    auto found = registry().variables.find(host);
    if (found == registry().variables.end()) return failed() ? failed() : INVALID_SYMBOL;
    Variable &held = found->second;
    if (!held.address) {
        if (int error = variable(&held.address, &held.bytes, held.module, held.name)) return error;
        if (held.managed) *held.managed = held.address;
    }
    if (where) *where = held.address;
    if (bytes) *bytes = held.bytes;
    return OK;
}

// Variables with __managed__ are used by the host before any kernel is launched.
void prepare_managed() {
    for (auto &[host, held] : registry().variables)
        if (held.managed && !held.address) symbol(nullptr, nullptr, host);
}

int copy_to_symbol(const void *host, const void *from, size_t bytes, size_t offset, Stream *stream) {
    void *address;
    size_t whole;
    if (int error = symbol(&address, &whole, host)) return error;
    if (offset + bytes > whole) return INVALID_VALUE;
    return copy((char *)address + offset, from, bytes, 4, stream);
}

int copy_from_symbol(void *to, const void *host, size_t bytes, size_t offset, Stream *stream) {
    void *address;
    size_t whole;
    if (int error = symbol(&address, &whole, host)) return error;
    if (offset + bytes > whole) return INVALID_VALUE;
    return copy(to, (char *)address + offset, bytes, 4, stream);
}

// ── kernels ─────────────────────────────────────────────────────────────────

int kernel_of(Function **where, const void *symbol) {
    Function *found;
    int error = known(&found, symbol);
    return error ? error : put(where, found);
}

int function_attributes(FunctionAttributes *where, const void *symbol) {
    Function *found;
    if (int error = known(&found, symbol)) return error;
    found->about.dynamic = found->dynamic_most;
    return put(where, found->about);
}

int function_attribute(int *value, int which, const void *symbol) {
    FunctionAttributes a;
    if (int error = function_attributes(&a, symbol)) return error;
    const int all[] = {
        a.threads, (int)a.shared, (int)a.constant, (int)a.local, a.registers, a.ptx, a.binary, a.cache,
        a.dynamic, a.carveout, a.cluster_must_be_set, a.cluster[0], a.cluster[1], a.cluster[2], a.portable, a.policy,
    };
    return which < 0 || which > 15 ? INVALID_VALUE : put(value, all[which]);
}

int set_function_attribute(const void *symbol, int which, int value) {
    Function *found;
    if (int error = known(&found, symbol)) return error;
    if (which == 8) {
        if (value < 0 || value + (int)found->about.shared > state.attributes[97]) return INVALID_VALUE;
        found->dynamic_most = value;
    } else if (which == 9) found->about.carveout = value;
    else if (which >= 11 && which <= 13) found->about.cluster[which - 11] = value;
    else if (which == 14) found->about.portable = value;
    else if (which == 15) found->about.policy = value;
    else return INVALID_VALUE;
    return OK;
}

int function_name(const char **where, const void *symbol) {
    Function *found;
    int error = known(&found, symbol);
    return error ? error : put(where, found->name.c_str());
}

int function_module(Module **where, const void *symbol) {
    Function *found;
    int error = known(&found, symbol);
    return error ? error : put(where, found->module);
}

int parameter_count(const void *symbol, size_t *count) {
    Function *found;
    int error = known(&found, symbol);
    return error ? error : put(count, found->sizes.size());
}

int parameter_info(const void *symbol, size_t index, size_t *offset, size_t *size) {
    Function *found;
    if (int error = known(&found, symbol)) return error;
    if (index >= found->sizes.size()) return INVALID_VALUE;
    if (offset) *offset = found->offsets[index];
    if (size) *size = found->sizes[index];
    return OK;
}

// ── launches ────────────────────────────────────────────────────────────────

namespace {
struct Pushed { Three grid, block; size_t shared; Stream *stream; };
thread_local std::vector<Pushed> pushed;

uint64_t two(unsigned low, unsigned high) { return low | (uint64_t)high << 32; }
}  // namespace

unsigned push(Three grid, Three block, size_t shared, Stream *stream) {
    pushed.push_back({grid, block, shared, stream});
    return 0;
}

int pop(Three *grid, Three *block, size_t *shared, Stream **stream) {
    if (pushed.empty()) return 52;  // missing configuration
    Pushed last = pushed.back();
    pushed.pop_back();
    *grid = last.grid, *block = last.block, *shared = last.shared, *stream = last.stream;
    return OK;
}

// What a launch is refused for before it begins, with CUDA's numbers.
static int check(const Launch &launch) {
    const Function &kernel = *launch.kernel;
    const Three &g = launch.grid, &b = launch.block;
    uint64_t threads = (uint64_t)b.x * b.y * b.z;
    if (!g.x || !g.y || !g.z || !threads) return INVALID_CONFIGURATION;
    if (b.x > 1024 || b.y > 1024 || b.z > 64 || threads > 1024) return INVALID_CONFIGURATION;
    if (g.x > 0x7FFFFFFFu || g.y > 65535 || g.z > 65535) return INVALID_CONFIGURATION;
    if (threads > (uint64_t)kernel.about.threads) return 701;  // out of resources
    if (launch.shared > (size_t)kernel.dynamic_most) return INVALID_VALUE;
    if (!launch.cooperative) return OK;
    int blocks;
    if (int error = occupancy(&blocks, launch.kernel, threads, launch.shared)) return error;
    uint64_t most = (uint64_t)blocks * state.attributes[16];
    return (uint64_t)g.x * g.y * g.z > most ? COOPERATIVE_TOO_LARGE : OK;
}

int pack(Launch *launch, void **arguments, void **extra) {
    Function *kernel = launch->kernel;
    std::string &made = launch->parameters;
    made.clear();
    for (size_t index = 0; index < kernel->sizes.size() && arguments; index++) {
        size_t offset = kernel->offsets[index], size = kernel->sizes[index];
        if (!arguments[index]) return INVALID_VALUE;
        made.resize(offset + size);
        memcpy(&made[offset], arguments[index], size);
    }
    const char *buffer = nullptr;
    size_t bytes = 0;
    for (; extra && !arguments && *extra; extra += 2) {
        if (*extra == (void *)1) buffer = (const char *)extra[1];
        if (*extra == (void *)2) bytes = *(size_t *)extra[1];
    }
    if (buffer) made.assign(buffer, bytes);
    return OK;
}

int run(const Launch &launch) {
    if (int error = failed()) return error;
    const Three &g = launch.grid, &b = launch.block, &c = launch.cluster;
    Answer answer;
    int error = ask(
        LAUNCH, {launch.kernel->handle, two(g.x, g.y), two(g.z, b.x), two(b.y, b.z), two(c.x, c.y),
                 two(c.z, launch.cooperative), launch.shared},
        launch.parameters, &answer);
    if (!error) state.printed += answer.data;
    // An error of a kernel is told later, and stays.
    if (answer[0]) state.failed = answer[0];
    return error;
}

static int start(Launch &launch, void **arguments, void **extra, Stream *stream) {
    if (int error = pack(&launch, arguments, extra)) return error;
    if (int error = check(launch)) {
        const Three &g = launch.grid, &b = launch.block, &c = launch.cluster;
        unlaunched({launch.kernel->handle, two(g.x, g.y), two(g.z, b.x), two(b.y, b.z), two(c.x, c.y),
                    two(c.z, launch.cooperative), launch.shared});
        return error;
    }
    return submit(launch, stream);
}

int launch(const void *symbol, Three grid, Three block, void **arguments, size_t shared, Stream *stream, bool cooperative, void **extra) {
    Launch made{};
    if (int error = known(&made.kernel, symbol)) return error;
    prepare_managed();
    made.grid = grid, made.block = block, made.shared = shared, made.cooperative = cooperative;
    const int *needed = made.kernel->about.cluster;
    if (needed[0]) made.cluster = {(unsigned)needed[0], (unsigned)needed[1], (unsigned)needed[2]};
    return start(made, arguments, extra, stream);
}

int launch_config(const Config *config, const void *symbol, void **arguments) {
    DriverConfig made{config->grid, config->block, (unsigned)config->shared, config->stream, config->attributes, config->count};
    return launch_driver_config(&made, symbol, arguments, nullptr);
}

int launch_driver_config(const DriverConfig *config, const void *symbol, void **arguments, void **extra) {
    Launch made{};
    if (int error = known(&made.kernel, symbol)) return error;
    prepare_managed();
    made.grid = config->grid, made.block = config->block, made.shared = config->shared;
    const int *needed = made.kernel->about.cluster;
    if (needed[0]) made.cluster = {(unsigned)needed[0], (unsigned)needed[1], (unsigned)needed[2]};
    for (unsigned index = 0; index < config->count; index++) {
        const Attribute &each = config->attributes[index];
        if (each.id == 2) made.cooperative = each.words[0];
        if (each.id == 4) made.cluster = {each.words[0], each.words[1], each.words[2]};
    }
    return start(made, arguments, extra, config->stream);
}

// ── launches whose parts are set one by one ─────────────────────────────────

int set_block(Function *kernel, int x, int y, int z) {
    if (x < 1 || y < 1 || z < 1) return INVALID_VALUE;
    kernel->set_block = {(unsigned)x, (unsigned)y, (unsigned)z};
    return OK;
}

int set_shared(Function *kernel, unsigned bytes) {
    kernel->set_shared = bytes;
    return OK;
}

int set_parameter(Function *kernel, int offset, const void *from, unsigned bytes) {
    if (offset < 0 || offset + (size_t)bytes > 32764 || (!from && bytes)) return INVALID_VALUE;
    std::string &all = kernel->set_parameters;
    if (all.size() < offset + (size_t)bytes) all.resize(offset + bytes);
    memcpy(&all[offset], from, bytes);
    return OK;
}

int set_parameters_size(Function *kernel, unsigned bytes) {
    if (bytes > 32764) return INVALID_VALUE;
    kernel->set_parameters.resize(bytes);
    return OK;
}

int launch_set(Function *kernel, int width, int height, Stream *stream) {
    if (width < 1 || height < 1) return INVALID_VALUE;
    size_t bytes = kernel->set_parameters.size();
    void *extra[] = {(void *)1, &kernel->set_parameters[0], (void *)2, &bytes, nullptr};
    Three grid{(unsigned)width, (unsigned)height, 1};
    return launch(kernel, grid, kernel->set_block, nullptr, kernel->set_shared, stream, false, extra);
}

// ── how many blocks run at the same time ────────────────────────────────────

int occupancy(int *blocks, const void *symbol, int threads, size_t shared) {
    Function *found;
    if (int error = known(&found, symbol)) return error;
    if (threads < 1 || !blocks) return INVALID_VALUE;
    const int *a = state.attributes;
    int warps = (threads + 31) / 32;
    size_t bytes = found->about.shared + shared + a[111];
    int most = a[39] / 32 / warps;
    if (most > a[106]) most = a[106];
    if (bytes && most > (int)(a[81] / bytes)) most = a[81] / bytes;
    int registers = a[82] / (found->about.registers * 32 * warps);
    if (most > registers) most = registers;
    if (threads > found->about.threads || found->about.shared + shared > (size_t)a[97]) most = 0;
    *blocks = most;
    return OK;
}

int potential_block(int *grid, int *block, const void *symbol, size_t (*shared_of)(int), size_t shared, int most) {
    Function *found;
    if (int error = known(&found, symbol)) return error;
    int best = 0, size = most > 0 && most < found->about.threads ? most : found->about.threads;
    for (int threads = size / 32 * 32 ? size / 32 * 32 : size; threads > 0; threads -= 32) {
        int blocks;
        if (int error = occupancy(&blocks, symbol, threads, shared_of ? shared_of(threads) : shared)) return error;
        if (blocks * threads > best) best = blocks * threads, *block = threads, *grid = blocks * state.attributes[16];
    }
    return OK;
}

int dynamic_memory(size_t *bytes, const void *symbol, int blocks, int) {
    Function *found;
    if (int error = known(&found, symbol)) return error;
    if (blocks < 1) return INVALID_VALUE;
    size_t each = state.attributes[81] / blocks - state.attributes[111];
    size_t most = state.attributes[97];
    return put(bytes, (each < most ? each : most) - found->about.shared);
}

int clusters(int *count, const void *symbol, Three block, size_t shared, Attribute *attributes, unsigned number) {
    int blocks;
    if (int error = occupancy(&blocks, symbol, block.x * block.y * block.z, shared)) return error;
    unsigned size = 1;
    for (unsigned index = 0; index < number; index++)
        if (attributes[index].id == 4) size = attributes[index].words[0] * attributes[index].words[1] * attributes[index].words[2];
    return put(count, size ? blocks * state.attributes[16] / size : 0);
}

// ── tensor maps ─────────────────────────────────────────────────────────────

template <class Number> static void append(std::string &to, const Number *from, size_t count) {
    to.append((const char *)from, sizeof(Number) * count);
}

static int encoded(void *map, std::initializer_list<uint64_t> words, const std::string &data) {
    Answer answer;
    if ((uint64_t)map % 64) return INVALID_VALUE;
    if (int error = ask(ENCODE, words, data, &answer)) return error;
    memcpy(map, answer.data.data(), 128);
    return OK;
}

int encode_tiled(void *map, int type, unsigned rank, void *address, const uint64_t *sizes, const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill) {
    if (!map || !rank || rank > 5 || !sizes || !box || !steps) return INVALID_VALUE;
    std::string data;
    append(data, sizes, rank), append(data, strides, rank - 1), append(data, box, rank), append(data, steps, rank);
    return encoded(map, {0, (uint64_t)type, rank, (uint64_t)address, (uint64_t)interleave, (uint64_t)swizzle, (uint64_t)promotion, (uint64_t)fill}, data);
}

int encode_im2col(void *map, int type, unsigned rank, void *address, const uint64_t *sizes, const uint64_t *strides, const int *lower, const int *upper, unsigned channels, unsigned pixels, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill) {
    if (!map || rank < 3 || rank > 5 || !sizes || !strides || !lower || !upper || !steps) return INVALID_VALUE;
    std::string data;
    append(data, sizes, rank), append(data, strides, rank - 1), append(data, lower, rank - 2), append(data, upper, rank - 2), append(data, steps, rank);
    return encoded(map, {1, (uint64_t)type, rank, (uint64_t)address, (uint64_t)interleave, (uint64_t)swizzle, (uint64_t)promotion, (uint64_t)fill, channels, pixels}, data);
}

int replace_address(void *map, void *address) {
    if (!map || (uint64_t)map % 64) return INVALID_VALUE;
    memcpy(map, &address, 8);
    return OK;
}

int reset() {
    flush();
    release_all();
    state.failed = OK;
    for (auto &[host, held] : registry().variables) held.address = nullptr;
    for (auto &module : registry().modules) {
        if (module->place) module->handle = 0, module->error = OK;
        for (auto &[name, kernel] : module->kernels) kernel->handle = 0, kernel->error = OK;
    }
    return state.file < 0 ? OK : ask(RESET, {});
}
