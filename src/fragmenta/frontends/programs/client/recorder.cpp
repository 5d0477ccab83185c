// Stands before the real driver: calls go through, and chosen launches are recorded.
//
// A program finds this library as libcuda.so.1.  What is not defined here is found in the
// real driver, which this library is linked with.  CUDA's runtime asks the driver for its
// functions by name, so it gets these, too, whether it is shared or static.
//
// The server decides what is recorded and which memory is needed for it: all that can be
// reached from the parameters and from the module's variables.
#include "images.h"
#include "server.h"

#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))
typedef void *Handle;

namespace {
enum { GAP = 512, ALIGNED = 256 };  // bytes between allocations; what they are aligned to

void *driver() {
    static void *held = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
    return held;
}

void *real_address(const char *name) { return driver() ? dlsym(driver(), name) : nullptr; }

// A function of the real driver; an error, if it has none of this name.
template <class... Given> int real(const char *name, Given... given) {
    auto *found = (int (*)(Given...))real_address(name);
    return found ? found(given...) : (int)NOT_FOUND;
}

// ── what the program has ────────────────────────────────────────────────────

struct Region { size_t size; bool host; };
struct Image { const void *wrapper; std::string copy; uint64_t number; };  // a wrapper lies in the program
struct Kernel { Handle module = nullptr; std::string name; };
struct Variable { uint64_t address; size_t size; };
struct Chosen {
    uint64_t number = 0, left = 0;  // of the server; how many launches it wants
    std::vector<uint32_t> offsets, sizes;
    std::vector<Variable> variables;
};
struct Known {
    std::map<uint64_t, Region> regions;
    std::map<Handle, Image> images;
    std::map<Handle, Kernel> kernels;
    std::map<Handle, Chosen> chosen;
};
Known &known() { static auto *made = new Known; return *made; }

int hold(int error, void **where, size_t size, bool host) {
    if (error || !where || !*where) return error;
    Guard guard;
    known().regions[(uint64_t)*where] = {size, host};
    return error;
}

// The size that a program asked for, in place of the larger one that it got.
int asked(int error, uint64_t base, size_t *size) {
    Guard guard;
    auto found = known().regions.find(base);
    if (!error && size && found != known().regions.end()) *size = found->second.size;
    return error;
}

void forget(const void *where) {
    Guard guard;
    known().regions.erase((uint64_t)where);
}

// A fat binary in a wrapper lies in the program; other images may be freed.
int loaded(int error, Handle *where, const void *image) {
    if (error || !where || !image) return error;
    Guard guard;
    Image made{nullptr, "", 0};
    if (unwrapped(image) != image) made.wrapper = image;
    else made.copy.assign((const char *)image, image_size(image));
    known().images[*where] = made;
    return error;
}

int loaded_file(int error, Handle *where, const char *path) {
    FILE *file = error || !where || !path ? nullptr : fopen(path, "rb");
    if (!file) return error;
    std::string data;
    char part[65536];
    while (size_t got = fread(part, 1, sizeof part, file)) data.append(part, got);
    fclose(file);
    Guard guard;
    known().images[*where] = {nullptr, data, 0};
    return error;
}

void unloaded(Handle module) {
    Guard guard;
    known().images.erase(module);
    for (auto each = known().kernels.begin(); each != known().kernels.end();)
        if (each->second.module == module) known().chosen.erase(each->first), each = known().kernels.erase(each);
        else ++each;
}

int named(int error, Handle *where, Handle module, const char *name) {
    if (error || !where || !name) return error;
    Guard guard;
    known().kernels[*where] = {module, name};
    known().chosen.erase(*where);
    return error;
}

int same_kernel(int error, Handle *where, Handle kernel) {
    if (error || !where) return error;
    Guard guard;
    auto found = known().kernels.find(kernel);
    if (found != known().kernels.end()) known().kernels[*where] = found->second;
    return error;
}

// ── what the server wants ───────────────────────────────────────────────────

// What recordings say about the card.
bool introduced() {
    static bool done = false;
    if (done) return true;
    int device = 0, major = 0, minor = 0, version = 0;
    char name[256] = "";
    real("cuCtxGetDevice", &device);
    real("cuDeviceGetName", name, 256, device);
    real("cuDeviceGetAttribute", &major, 75, device);
    real("cuDeviceGetAttribute", &minor, 76, device);
    real("cuDriverGetVersion", &version);
    return done = !ask(CARD, {(uint64_t)major, (uint64_t)minor, (uint64_t)version}, name);
}

uint64_t sent(Handle module) {
    auto found = known().images.find(module);
    if (found == known().images.end()) return 0;
    Image &image = found->second;
    if (image.number) return image.number;
    auto parts = image.wrapper ? relocatable(image.wrapper) : std::vector<const void *>{};
    const void *whole = image.wrapper ? unwrapped(image.wrapper) : image.copy.data();
    Answer answer;
    int error = parts.empty() ? ask(LOAD, {}, whole, image.wrapper ? image_size(whole) : image.copy.size(), &answer)
                              : ask(LOAD, {parts.size()}, together(parts), &answer);
    if (!error) image.number = answer[0];
    return image.number;
}

// The address of a variable of the module that a kernel is in.
Variable variable(Handle module, const char *name) {
    Variable made{0, 0};
    if (real("cuModuleGetGlobal_v2", &made.address, &made.size, module, name))
        if (real("cuLibraryGetGlobal", &made.address, &made.size, module, name)) return {0, 0};
    return made;
}

Kernel about(Handle function) {
    auto found = known().kernels.find(function);
    if (found != known().kernels.end()) return found->second;
    Kernel made;
    const char *name = nullptr;
    if (real("cuFuncGetName", &name, function) || !name) return made;
    made.name = name;
    real("cuFuncGetModule", &made.module, function);
    return known().kernels[function] = made;
}

// What is asked about a kernel once: whether its launches are wanted, and its parameters.
Chosen *chosen(Handle function) {
    auto found = known().chosen.find(function);
    if (found != known().chosen.end()) return found->second.left ? &found->second : nullptr;
    Chosen &made = known().chosen[function];
    Kernel kernel = about(function);
    if (kernel.name.empty() || !introduced()) return nullptr;
    Answer answer;
    if (ask(KERNEL, {sent(kernel.module)}, kernel.name, &answer) || !answer[0]) return nullptr;
    made.number = answer[0], made.left = answer[1];
    size_t count = answer[2];
    made.offsets.resize(count), made.sizes.resize(count);
    memcpy(made.offsets.data(), answer.data.data(), 4 * count);
    memcpy(made.sizes.data(), answer.data.data() + 4 * count, 4 * count);
    const char *names = answer.data.data() + 8 * count, *end = answer.data.data() + answer.data.size();
    for (; names < end; names += strlen(names) + 1) made.variables.push_back(variable(kernel.module, names));
    return made.left ? &made : nullptr;
}

// The parameters of a launch; false if the driver will refuse it.
bool packed(std::string &made, const Chosen &kernel, void **arguments, void **extra) {
    for (size_t index = 0; index < kernel.sizes.size() && arguments; index++) {
        if (!arguments[index]) return false;
        made.resize(kernel.offsets[index] + kernel.sizes[index]);
        memcpy(&made[kernel.offsets[index]], arguments[index], kernel.sizes[index]);
    }
    const char *buffer = nullptr;
    size_t bytes = 0;
    for (; extra && !arguments && *extra; extra += 2) {
        if (*extra == (void *)1) buffer = (const char *)extra[1];
        if (*extra == (void *)2) bytes = *(size_t *)extra[1];
    }
    if (buffer) made.assign(buffer, bytes);
    return arguments || buffer || kernel.sizes.empty();
}

// ── memory ──────────────────────────────────────────────────────────────────

struct Part { uint64_t address, size; bool host; };

// Memory that the program did not get from functions that are known here.
void add_unknown(const std::string &parameters) {
    auto &regions = known().regions;
    for (size_t place = 0; place + 8 <= parameters.size(); place += 8) {
        auto word = at<uint64_t>(parameters.data(), place), base = (uint64_t)0;
        size_t size = 0;
        if (word < 1 << 20 || word >> 56) continue;
        auto after = regions.upper_bound(word);
        if (after != regions.begin()) {
            auto before = std::prev(after);
            if (word <= before->first + before->second.size) continue;
        }
        if (!real("cuMemGetAddressRange_v2", &base, &size, word) && base && size) regions[base] = {size, false};
    }
}

std::vector<Part> table(const Chosen &kernel) {
    std::vector<Part> made;
    for (auto &[address, region] : known().regions) {
        uint64_t start = region.host ? address / ALIGNED * ALIGNED : address;
        made.push_back({start, region.size + (address - start), region.host});
    }
    for (auto &each : kernel.variables) made.push_back({each.address, each.size, false});
    return made;
}

int read(const std::vector<Part> &parts, const std::vector<uint32_t> &wanted, std::string &into) {
    size_t whole = 0, place = 0;
    for (uint32_t each : wanted) whole += parts[each].size;
    into.resize(whole);
    for (uint32_t each : wanted) {
        const Part &part = parts[each];
        if (part.host) memcpy(&into[place], (const void *)part.address, part.size);
        else if (part.size)
            if (int error = real("cuMemcpyDtoH_v2", &into[place], part.address, part.size)) return error;
        place += part.size;
    }
    return OK;
}

std::vector<uint32_t> numbers(const std::string &data) {
    std::vector<uint32_t> made(data.size() / 4);
    memcpy(made.data(), data.data(), made.size() * 4);
    return made;
}

uint64_t two(unsigned low, unsigned high) { return low | (uint64_t)high << 32; }

struct Shape { Three grid, block, cluster; bool cooperative; size_t shared; };

// Sends what a launch needs; whether it shall be recorded, and the memory that it needs.
bool before(const Chosen &kernel, const Shape &s, const std::string &parameters, const std::vector<Part> &parts, std::vector<uint32_t> &needed) {
    std::string data = parameters;
    for (const Part &each : parts) data.append((const char *)&each.address, 8), data.append((const char *)&each.size, 8);
    Answer answer;
    if (ask(LAUNCH,
            {kernel.number, two(s.grid.x, s.grid.y), two(s.grid.z, s.block.x), two(s.block.y, s.block.z),
             two(s.cluster.x, s.cluster.y), two(s.cluster.z, s.cooperative), s.shared, parameters.size(), kernel.variables.size()},
            data, &answer))
        return false;
    while (!answer.data.empty()) {
        std::vector<uint32_t> wanted = numbers(answer.data);
        needed.insert(needed.end(), wanted.begin(), wanted.end());
        std::string content;
        if (read(parts, wanted, content)) return false;
        answer = Answer{};
        if (ask(MEMORY, {}, content, &answer)) return false;
    }
    return answer[0];
}

bool recordable(Handle stream) {
    int status = 0;
    return !real("cuStreamIsCapturing", stream, &status) && !status && !real("cuCtxSynchronize");
}

int record(Handle function, const Shape &shape, Handle stream, void **arguments, void **extra, const std::function<int()> &launch) {
    Guard guard;
    if (state.lost) return launch();
    Chosen *kernel = chosen(function);
    if (!kernel || !recordable(stream)) return launch();
    std::string parameters;
    if (!packed(parameters, *kernel, arguments, extra)) return launch();
    add_unknown(parameters);
    std::vector<Part> parts = table(*kernel);
    std::vector<uint32_t> needed;
    if (!before(*kernel, shape, parameters, parts, needed)) return launch();
    kernel->left--;
    int error = launch(), fault = OK;
    std::string content;
    if (!error) fault = real("cuCtxSynchronize");
    if (!error && !fault) fault = read(parts, needed, content);
    ask(AFTER, {(uint64_t)error, (uint64_t)fault}, content);
    return error;
}
}  // namespace

// ── the functions of the driver ─────────────────────────────────────────────

#define ALLOCATED(name, host, given, ...) \
    EXPORT int name given { return hold(real(#name, __VA_ARGS__), p, n, host); }
ALLOCATED(cuMemAlloc_v2, false, (void **p, size_t n), p, n ? n + GAP : n)
ALLOCATED(cuMemAllocManaged, false, (void **p, size_t n, unsigned f), p, n ? n + GAP : n, f)
ALLOCATED(cuMemAllocHost_v2, true, (void **p, size_t n), p, n ? n + GAP : n)
ALLOCATED(cuMemHostAlloc, true, (void **p, size_t n, unsigned f), p, n ? n + GAP : n, f)
ALLOCATED(cuMemAllocAsync, false, (void **p, size_t n, Handle s), p, n ? n + GAP : n, s)
ALLOCATED(cuMemAllocAsync_ptsz, false, (void **p, size_t n, Handle s), p, n ? n + GAP : n, s)
ALLOCATED(cuMemAllocFromPoolAsync, false, (void **p, size_t n, Handle q, Handle s), p, n ? n + GAP : n, q, s)
ALLOCATED(cuMemAllocFromPoolAsync_ptsz, false, (void **p, size_t n, Handle q, Handle s), p, n ? n + GAP : n, q, s)

EXPORT int cuMemAllocPitch_v2(void **p, size_t *pitch, size_t w, size_t h, unsigned e) {
    int error = real("cuMemAllocPitch_v2", p, pitch, w, h + (w && h), e);
    return hold(error, p, error ? 0 : *pitch * h, false);
}
EXPORT int cuMemHostRegister_v2(void *p, size_t n, unsigned f) { return hold(real("cuMemHostRegister_v2", p, n, f), &p, n, true); }

#define FREED(name, given, ...) EXPORT int name given { forget(p); return real(#name, __VA_ARGS__); }
FREED(cuMemFree_v2, (void *p), p)
FREED(cuMemFreeHost, (void *p), p)
FREED(cuMemHostUnregister, (void *p), p)
FREED(cuMemFreeAsync, (void *p, Handle s), p, s)
FREED(cuMemFreeAsync_ptsz, (void *p, Handle s), p, s)
EXPORT int cuMemMap(void *p, size_t n, size_t at, uint64_t h, uint64_t f) { return hold(real("cuMemMap", p, n, at, h, f), &p, n, false); }
FREED(cuMemUnmap, (void *p, size_t n), p, n)

EXPORT int cuMemGetAddressRange_v2(uint64_t *p, size_t *n, uint64_t at) {
    uint64_t base = 0;
    int error = real("cuMemGetAddressRange_v2", &base, n, at);
    if (!error && p) *p = base;
    return asked(error, base, n);
}
enum { RANGE_START = 11, RANGE_SIZE = 12 };  // attributes of a pointer
static int range_asked(int error, void *v, int which, uint64_t at) {
    uint64_t base = 0;
    if (error || which != RANGE_SIZE || real("cuPointerGetAttribute", (void *)&base, (int)RANGE_START, at)) return error;
    return asked(error, base, (size_t *)v);
}
EXPORT int cuPointerGetAttribute(void *v, int which, uint64_t at) { return range_asked(real("cuPointerGetAttribute", v, which, at), v, which, at); }
EXPORT int cuPointerGetAttributes(unsigned n, int *which, void **v, uint64_t at) {
    int error = real("cuPointerGetAttributes", n, which, v, at);
    for (unsigned i = 0; !error && i < n; i++) range_asked(error, v[i], which[i], at);
    return error;
}

EXPORT int cuModuleLoad(Handle *m, const char *f) { return loaded_file(real("cuModuleLoad", m, f), m, f); }
EXPORT int cuModuleLoadData(Handle *m, const void *i) { return loaded(real("cuModuleLoadData", m, i), m, i); }
EXPORT int cuModuleLoadDataEx(Handle *m, const void *i, unsigned n, int *o, void **v) { return loaded(real("cuModuleLoadDataEx", m, i, n, o, v), m, i); }
EXPORT int cuModuleLoadFatBinary(Handle *m, const void *i) { return loaded(real("cuModuleLoadFatBinary", m, i), m, i); }
EXPORT int cuModuleUnload(Handle m) { unloaded(m); return real("cuModuleUnload", m); }
EXPORT int cuModuleGetFunction(Handle *k, Handle m, const char *n) { return named(real("cuModuleGetFunction", k, m, n), k, m, n); }
EXPORT int cuLibraryLoadData(Handle *m, const void *i, int *o, void **v, unsigned n, int *p, void **w, unsigned k) { return loaded(real("cuLibraryLoadData", m, i, o, v, n, p, w, k), m, i); }
EXPORT int cuLibraryLoadFromFile(Handle *m, const char *f, int *o, void **v, unsigned n, int *p, void **w, unsigned k) { return loaded_file(real("cuLibraryLoadFromFile", m, f, o, v, n, p, w, k), m, f); }
EXPORT int cuLibraryUnload(Handle m) { unloaded(m); return real("cuLibraryUnload", m); }
EXPORT int cuLibraryGetKernel(Handle *k, Handle m, const char *n) { return named(real("cuLibraryGetKernel", k, m, n), k, m, n); }
EXPORT int cuKernelGetFunction(Handle *f, Handle k) { return same_kernel(real("cuKernelGetFunction", f, k), f, k); }

#define LAUNCHES(suffix) \
    EXPORT int cuLaunchKernel##suffix(Handle k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, Handle s, void **a, void **x) { \
        return record(k, {{gx, gy, gz}, {bx, by, bz}, {}, false, shared}, s, a, x, \
                      [=] { return real("cuLaunchKernel" #suffix, k, gx, gy, gz, bx, by, bz, shared, s, a, x); }); \
    } \
    EXPORT int cuLaunchCooperativeKernel##suffix(Handle k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, Handle s, void **a) { \
        return record(k, {{gx, gy, gz}, {bx, by, bz}, {}, true, shared}, s, a, nullptr, \
                      [=] { return real("cuLaunchCooperativeKernel" #suffix, k, gx, gy, gz, bx, by, bz, shared, s, a); }); \
    } \
    EXPORT int cuLaunchKernelEx##suffix(const DriverConfig *c, Handle k, void **a, void **x) { \
        return record(k, shape_of(*c), (Handle)c->stream, a, x, [=] { return real("cuLaunchKernelEx" #suffix, c, k, a, x); }); \
    } \
    EXPORT int cuGraphLaunch##suffix(Handle g, Handle s) { note_graph(); return real("cuGraphLaunch" #suffix, g, s); }

static Shape shape_of(const DriverConfig &c) {
    Shape made{c.grid, c.block, {}, false, c.shared};
    for (unsigned index = 0; index < c.count; index++) {
        const Attribute &each = c.attributes[index];
        if (each.id == 2) made.cooperative = each.words[0];
        if (each.id == 4) made.cluster = {each.words[0], each.words[1], each.words[2]};
    }
    return made;
}

static void note_graph() {
    static bool told = false;
    Guard guard;
    if (!told && !state.lost) ask(REFUSED, {}, "launches of a graph are not recorded; launch the kernels themselves");
    told = true;
}

LAUNCHES()
LAUNCHES(_ptsz)

// ── functions by name ───────────────────────────────────────────────────────

EXPORT int cuGetProcAddress(const char *name, void **where, int version, uint64_t flags);
EXPORT int cuGetProcAddress_v2(const char *name, void **where, int version, uint64_t flags, int *status);

namespace {
struct Ours { const char *name; void *place; };
#define OURS(name) {#name, (void *)name}
const Ours ours[] = {
    OURS(cuMemAlloc_v2), OURS(cuMemAllocManaged), OURS(cuMemAllocHost_v2), OURS(cuMemHostAlloc),
    OURS(cuMemAllocAsync), OURS(cuMemAllocAsync_ptsz), OURS(cuMemAllocFromPoolAsync), OURS(cuMemAllocFromPoolAsync_ptsz),
    OURS(cuMemAllocPitch_v2), OURS(cuMemHostRegister_v2), OURS(cuMemFree_v2), OURS(cuMemFreeHost),
    OURS(cuMemHostUnregister), OURS(cuMemFreeAsync), OURS(cuMemFreeAsync_ptsz), OURS(cuMemMap), OURS(cuMemUnmap),
    OURS(cuMemGetAddressRange_v2), OURS(cuPointerGetAttribute), OURS(cuPointerGetAttributes),
    OURS(cuModuleLoad), OURS(cuModuleLoadData), OURS(cuModuleLoadDataEx), OURS(cuModuleLoadFatBinary),
    OURS(cuModuleUnload), OURS(cuModuleGetFunction), OURS(cuLibraryLoadData), OURS(cuLibraryLoadFromFile),
    OURS(cuLibraryUnload), OURS(cuLibraryGetKernel), OURS(cuKernelGetFunction),
    OURS(cuLaunchKernel), OURS(cuLaunchKernel_ptsz), OURS(cuLaunchKernelEx), OURS(cuLaunchKernelEx_ptsz),
    OURS(cuLaunchCooperativeKernel), OURS(cuLaunchCooperativeKernel_ptsz), OURS(cuGraphLaunch), OURS(cuGraphLaunch_ptsz),
    OURS(cuGetProcAddress), OURS(cuGetProcAddress_v2),
};

const Ours *by_name(const std::string &name) {
    for (const Ours &each : ours)
        if (name == each.name) return &each;
    return nullptr;
}

// What the program gets instead of a function of the real driver.
void *instead(const char *name, void *found, int version, uint64_t flags) {
    for (const Ours &each : ours)
        if (found == real_address(each.name)) return each.place;
    std::string wanted = name;
    if (wanted == "cuGetProcAddress") return version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
    if (flags & 2)  // one default stream for each thread
        if (const Ours *each = by_name(wanted + "_ptsz")) return each->place;
    for (const char *suffix : {"_v2", ""})
        if (const Ours *each = by_name(wanted + suffix)) return each->place;
    return found;
}
}  // namespace

EXPORT int cuGetProcAddress(const char *name, void **where, int version, uint64_t flags) {
    int error = real("cuGetProcAddress", name, where, version, flags);
    if (!error && where && *where) *where = instead(name, *where, version, flags);
    return error;
}

EXPORT int cuGetProcAddress_v2(const char *name, void **where, int version, uint64_t flags, int *status) {
    int error = real("cuGetProcAddress_v2", name, where, version, flags, status);
    if (!error && where && *where) *where = instead(name, *where, version, flags);
    return error;
}
